"""The only code that touches a target: one module per kind of device behind one protocol.

Importing its modules loads msgspec.
"""
