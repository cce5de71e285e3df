"""Graphs in the files that msprobe's TensorBoard viewer (``tb-graph-ascend``) reads: ``.vis.db`` and ``.vis``.

Importing its modules loads msgspec.
"""
