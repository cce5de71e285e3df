"""Golden definitions: the layers of a model, and the steps of optimizers.

Importing its modules loads msgspec and torch.
"""
