"""The frameworks whose calls are replayed: what a record names, and how its function is run.

Importing its modules loads msgspec and torch.
"""
