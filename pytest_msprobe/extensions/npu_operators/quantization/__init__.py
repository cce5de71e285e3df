"""Golden definitions: quantization, and operators whose inputs or results are quantized."""
