"""Reports of a comparison: tables in msprobe's columns, and a page to look at.

Importing its modules loads msgspec and pytest.
"""
