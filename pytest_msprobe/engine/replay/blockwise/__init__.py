"""Golden and baseline of large calls block by block: raised copies of whole tensors are never made.

Importing its modules loads msgspec, torch and yaml.
"""
