"""An item that hangs, crashes or takes all memory costs that item alone.

Importing its modules loads msgspec, pytest, torch and xdist.
"""
