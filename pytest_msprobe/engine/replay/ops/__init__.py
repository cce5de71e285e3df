"""Traits of single APIs that the replay uses to find, draw, align and compare them.

Importing its modules loads msgspec and torch.
"""
