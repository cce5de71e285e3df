"""The files of a monitored run: what is written at each step, and the series that are read from it.

Importing its modules loads msgspec and numpy.
"""
