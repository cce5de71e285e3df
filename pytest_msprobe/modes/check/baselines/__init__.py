"""Recorded baselines: what one device measured, written down to judge another device by.

Importing its modules loads msgspec, pytest, torch and yaml.
"""
