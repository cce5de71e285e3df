"""Recorder of PyTorch: calls, modules, gradients, collectives. Importing this package imports torch.

Importing its modules loads isal, msgspec and torch.
"""
