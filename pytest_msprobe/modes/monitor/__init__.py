"""Watched training runs as test items."""
