"""The verdict on one compared call, and which differences explain others.

Importing its modules loads msgspec, pytest and yaml.
"""
