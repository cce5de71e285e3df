"""msprobe's online dispatch: every operator compared with the CPU as it runs, in msprobe's two tables.

Importing its modules loads isal, msgspec, pytest, torch and yaml.
"""
