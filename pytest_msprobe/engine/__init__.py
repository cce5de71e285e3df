"""A recorded call is built again, run on a device and on the CPU, and judged; no pytest in here.

Importing its modules loads msgspec and torch.
"""
