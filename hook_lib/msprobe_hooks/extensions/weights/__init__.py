"""Weights of a running model, written as digests from which those of shards, parts and wholes follow."""
