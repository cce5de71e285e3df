"""Golden definitions: attention, its masks, caches and indexers.

Importing its modules loads msgspec and torch.
"""
