"""Calls that run in another precision, so that what it changes can be watched: in a context, or in a whole process."""
