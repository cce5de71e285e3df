"""The reports of a run: on the terminal and in files.

Importing its modules loads msgspec and pytest.
"""
