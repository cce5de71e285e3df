"""Constraints on the drawn inputs of NPU operators."""
