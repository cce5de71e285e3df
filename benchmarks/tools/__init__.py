"""A bench for tools: planted faults and right devices, on which any tool that judges results can be measured.

``python -m benchmarks.tools`` runs alone: it needs torch, this project with its extra ``operators``, and of this
repository ``tests/corpus`` (what is planted) and ``tests/data/dumps`` with ``tests/data/verdict_quality`` (the recorded
calls it is planted in).
"""
