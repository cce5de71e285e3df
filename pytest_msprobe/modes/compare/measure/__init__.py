"""Measurements of the tensors of a compared pair."""
