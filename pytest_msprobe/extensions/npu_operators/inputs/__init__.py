"""Constraints on the drawn inputs of NPU operators.

Importing its modules loads torch.
"""
