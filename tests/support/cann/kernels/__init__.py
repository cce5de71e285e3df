"""Kernels of the simulated cards: operators computed by the CPU on the memory that a card's tensors lie in."""
