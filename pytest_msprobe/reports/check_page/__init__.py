"""The page of a check: what came of every record, of one run or of several, to search, sort and look into.

Importing its modules loads msgspec and pytest.
"""
