"""A monitored run, or a pair of them, as one page: a heat map of steps and tensors, curves, findings.

Importing its modules loads msgspec, numpy, pytest and yaml.
"""
