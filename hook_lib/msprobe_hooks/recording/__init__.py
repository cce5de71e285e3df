"""Recorder, as far as it is the same for every framework.

Importing its modules loads isal, msgspec and numpy.
"""
