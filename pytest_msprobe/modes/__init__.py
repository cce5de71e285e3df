"""The kinds of run, one folder each."""
