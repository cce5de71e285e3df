"""Partition of large calls into blocks that are computed one by one."""
