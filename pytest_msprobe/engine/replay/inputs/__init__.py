"""Inputs drawn for a recorded call, within what was recorded and what its API accepts."""
