"""Gives modules of a running program the inputs that a dump recorded for them."""
