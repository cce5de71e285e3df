"""The page of calls on several ranks: a lane for each, calls in order, what joins them.

Importing its modules loads msgspec.
"""
