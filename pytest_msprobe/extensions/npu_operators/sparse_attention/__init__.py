"""Golden definitions: attention over selected keys, and what selects them.

Importing its modules loads msgspec and torch.
"""
