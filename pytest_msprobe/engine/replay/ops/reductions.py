"""Rows of operations that reduce or scan dimensions, and of those that sort and select along one."""

from __future__ import annotations

from pytest_msprobe.engine.replay.inputs.constraints import segments, values
from pytest_msprobe.engine.replay.inputs.points import among, ties, zero_slices
from pytest_msprobe.engine.replay.ops.cuts import Blocks, along
from pytest_msprobe.engine.replay.ops.running_results import Running
from pytest_msprobe.engine.replay.ops.selected_positions import Selection
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows

_BLOCKS = Blocks(along, "input dim _stacklevel dtype")

ROWS: Rows = (
    ("sum", OpInfo(terms="sum", found_in="torch.sparse")),
    ("nansum", OpInfo(terms="sum")),
    ("mean nanmean", OpInfo(terms="mean")),
    (
        "softmax",
        OpInfo(constraint=values.masked_scores, blocks=_BLOCKS, gradient_terms="softmax", found_in="torch.sparse"),
    ),
    (
        "log_softmax",
        OpInfo(constraint=values.masked_scores, blocks=_BLOCKS, gradient_terms="log_softmax", found_in="torch.sparse"),
    ),
    ("logsumexp _softmax _log_softmax", OpInfo(constraint=values.masked_scores)),
    # Elements that are made of the one before.
    ("cumsum cumsum_", OpInfo(running=Running())),
    ("cumprod cumprod_", OpInfo(running=Running(product=True))),
    ("logcumsumexp _logcumsumexp", OpInfo(running=Running(of_gradient=False))),
    ("cumulative_trapezoid", OpInfo(running=Running(dim_at=2, default=-1, of_gradient=False))),
    # Positions of equal values.
    ("max min", OpInfo(selection=Selection(), points=ties("greatest", "least", dim=None))),
    ("median nanmedian", OpInfo(selection=Selection(), points=ties("middle", dim=None))),
    ("cummax cummin", OpInfo(selection=Selection(), points=ties("greatest", "least"))),
    ("mode", OpInfo(selection=Selection(counts=True), points=ties("any"))),
    ("kthvalue", OpInfo(selection=Selection(dim_at=2), points=ties("any", dim_at=2))),
    ("topk", OpInfo(selection=Selection(dim_at=2, orders=True), points=ties("greatest", dim_at=2))),
    ("sort", OpInfo(selection=Selection(orders=True), points=ties("any"))),
    ("argsort", OpInfo(selection=Selection(outputs=1, orders=True), points=ties("any"))),
    ("argmax argmin", OpInfo(selection=Selection(outputs=1, dim=None), points=ties("greatest", "least", dim=None))),
    # Equal values that share a gradient, or are one result.
    ("amax amin aminmax", OpInfo(points=ties("greatest", "least", dim=None))),
    ("unique _unique2", OpInfo(points=ties("any", dim=None))),
    ("unique_consecutive", OpInfo(points=ties("next", dim=None))),
    ("norm vector_norm linalg_vector_norm", OpInfo(points=zero_slices)),
    # Values for which alone a result is defined.
    ("searchsorted", OpInfo(constraint=values.sorted_boundaries(0, "sorted_sequence"), points=among(1, 0))),
    ("bucketize", OpInfo(constraint=values.sorted_boundaries(1, "boundaries"), points=among(0, 1))),
    # Numbers that divide data into parts.
    ("segment_reduce", OpInfo(constraint=segments.segment_reduce(0))),
    ("_segment_reduce_backward", OpInfo(constraint=segments.segment_reduce(2))),
)
