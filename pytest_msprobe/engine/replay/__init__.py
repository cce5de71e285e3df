"""Replay of a record: rebuild the call, run it on the device and on the CPU, judge the difference.

Importing its modules loads msgspec, torch and yaml.
"""
