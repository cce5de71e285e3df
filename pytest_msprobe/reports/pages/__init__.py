"""Pages that need nothing but a browser: what they share, and how one is written.

Importing its modules loads msgspec.
"""
