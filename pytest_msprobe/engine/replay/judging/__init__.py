"""Verdicts on the outputs and gradients of one call.

Importing its modules loads msgspec, torch and yaml.
"""
