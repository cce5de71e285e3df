"""Matching of calls between two dumps."""
