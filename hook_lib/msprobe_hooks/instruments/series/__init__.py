"""The files of a watched run: what is written at each step, and the series that are read from it."""
