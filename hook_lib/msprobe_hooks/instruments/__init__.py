"""Observers of a call that ask more than to be written down."""
