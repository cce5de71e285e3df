"""Golden definitions: routing of tokens to experts, and matrix products by groups.

Importing its modules loads msgspec and torch.
"""
