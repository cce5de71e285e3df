"""Recorder of PyTorch: calls, modules, gradients, collectives. Importing this package imports torch."""
