"""Check mode: each record is replayed on the device and judged.

Importing its modules loads msgspec, pytest, torch and yaml.
"""
