"""Measurements of the tensors of a compared pair.

Importing its modules loads msgspec, pytest and torch.
"""
