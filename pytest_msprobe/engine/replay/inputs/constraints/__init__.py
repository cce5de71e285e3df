"""Constraints on drawn arguments, beyond their recorded ranges.

Importing its modules loads torch.
"""
