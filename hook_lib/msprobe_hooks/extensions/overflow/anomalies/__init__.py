"""Overflow and NaN in the records of a dump: which calls bring them about, which only pass them on."""
