"""Verdicts on the outputs and gradients of one call."""
