"""Runs of two frameworks, or of two forms of a model: what the calls and layers of one are called in the other."""
