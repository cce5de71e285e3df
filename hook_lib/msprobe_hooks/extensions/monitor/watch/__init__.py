"""Watching training: statistics of what goes through a model, its gradients and its optimizer, step by step.

Importing its modules loads isal, mindspore, msgspec and torch.
"""
