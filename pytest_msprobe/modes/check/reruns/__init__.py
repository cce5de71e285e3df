"""Calls that run again after their verdict: repeated, on parts of their batch, or with perturbed inputs.

Importing its modules loads msgspec, torch and yaml.
"""
