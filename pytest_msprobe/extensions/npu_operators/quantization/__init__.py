"""Golden definitions: quantization, and operators whose inputs or results are quantized.

Importing its modules loads msgspec and torch.
"""
