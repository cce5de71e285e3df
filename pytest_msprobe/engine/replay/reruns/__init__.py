"""Further runs of a call, which show how it reacts to perturbed inputs, to repetition or to the CPU.

Importing its modules loads msgspec and torch.
"""
