"""Dumps of static graphs by MindSpore itself: the tensors of each kernel, a folder per iteration, as a `Dump`.

Importing its modules loads msgspec.
"""
