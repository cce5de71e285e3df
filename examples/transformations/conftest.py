"""Brings a metric of one's own, which is a column of every report and which ``policy.yaml`` limits."""

from __future__ import annotations


def worst_row_angle(target, golden):
    """Return the greatest 1 - cosine between rows of the two tensors; their lengths do not count."""
    if target.ndim < 2:
        return 0.0
    rows, others = target.double().flatten(0, -2), golden.double().flatten(0, -2)
    cosines = (rows * others).sum(-1) / (rows.norm(dim=-1) * others.norm(dim=-1))
    return 1 - cosines.min()


def pytest_msprobe_register_compare_metrics(registry):
    registry.add("worst_row_angle", worst_row_angle)
