"""The journal of a run.

Importing its modules loads msgspec.
"""
