"""Golden definitions of what goes through a sequence step by step, and of hyper-connections between layers.

Importing its modules loads msgspec and torch.
"""
