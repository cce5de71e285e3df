"""Run: collection, options, processes and reports that every mode shares.

Importing its modules loads msgspec, pytest and yaml.
"""
