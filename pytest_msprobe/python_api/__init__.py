"""Python API for notebooks and programs: what a run of pytest does with dumps, as functions.

Importing its modules loads msgspec, pytest and yaml.
"""
