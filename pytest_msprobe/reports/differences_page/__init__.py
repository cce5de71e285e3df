"""The page of what differs between two sides, in groups.

Importing its modules loads msgspec.
"""
