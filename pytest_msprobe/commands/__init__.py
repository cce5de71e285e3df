"""The commands of ``pytest-msprobe``, one module each.

Importing its modules loads msgspec and pytest.
"""
