"""The kinds of run, one folder each.

Importing its modules loads nothing.
"""
