"""Inputs drawn for a recorded call, within what was recorded and what its API accepts.

Importing its modules loads msgspec and torch.
"""
