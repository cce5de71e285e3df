"""Products of quantized matrices, of groups of rows, with gathered weights, and of parts of a vocabulary.

Importing its modules loads msgspec and torch.
"""
