"""Tensors looked at: what a file, a record or a saved case holds, and where two of them differ."""
