"""Golden definitions: layouts, casts, selections and updates of tensors.

Importing its modules loads msgspec and torch.
"""
