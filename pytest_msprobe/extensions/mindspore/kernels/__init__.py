"""Kernels of a static graph: what a kernel was given goes through a golden definition, and what it gave is judged.

Importing its modules loads msgspec, pytest, torch and yaml.
"""
