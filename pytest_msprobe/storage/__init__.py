"""Storage of tensors: safetensors files, their names, and how much they may take."""
