"""One recorded call: its arguments, the runs that it is made in, and what it leaves in them.

Importing its modules loads msgspec and torch.
"""
