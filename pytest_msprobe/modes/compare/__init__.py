"""Two recorded runs compared, call by call.

Importing its modules loads msgspec, pytest and yaml.
"""
