"""A monitored run against a golden run of the same seed and data: what leaves the tolerance first.

Importing its modules loads msgspec, numpy and yaml.
"""
