"""Storage of tensors: safetensors files, their names, and how much they may take.

Importing its modules loads msgspec and torch.
"""
