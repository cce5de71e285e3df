"""The runs of one call on the device, on the CPU in high precision, and on a baseline.

Importing its modules loads msgspec, torch and yaml.
"""
