"""Golden definitions: boxes around objects in images, and what is pooled from them.

Importing its modules loads msgspec and torch.
"""
