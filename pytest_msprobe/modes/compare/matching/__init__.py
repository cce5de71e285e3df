"""Matching of calls between two dumps.

Importing its modules loads msgspec, pytest and yaml.
"""
