"""Recorded baselines: what one device measured, written down to judge another device by."""
