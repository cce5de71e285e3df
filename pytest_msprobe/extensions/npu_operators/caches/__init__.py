"""Golden definitions: caches of keys and values, and what prepares a step of decoding over them.

Importing its modules loads msgspec and torch.
"""
