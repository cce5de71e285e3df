"""Recorder, as far as it is the same for every framework."""
