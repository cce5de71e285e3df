"""Paths of the files of a recording, a converted dump and a static graph."""
