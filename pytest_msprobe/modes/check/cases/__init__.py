"""Failing cases kept as files: saved when an item fails, judged again on any device.

Importing its modules loads msgspec, torch and yaml.
"""
