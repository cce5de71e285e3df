"""Results of records, as data.

Importing its modules loads msgspec.
"""
