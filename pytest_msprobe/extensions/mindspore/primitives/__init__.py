"""MindSpore's primitives in torch: what each takes as inputs is positional, what it is made with is named.

Names of settings are those of the primitive's constructor. A setting that only says how to compute (a lock, a seed, a
layout of memory) is no parameter of a definition.

Importing its modules loads mindspore, msgspec and torch.
"""
