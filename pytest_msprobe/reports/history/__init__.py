"""History of a run's items, from the journals of earlier runs.

Importing its modules loads msgspec and pytest.
"""
