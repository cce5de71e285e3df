"""The values of calls: dtypes, strides, nesting, files, and what exceptions mean.

Importing its modules loads msgspec and torch.
"""
