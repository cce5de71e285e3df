"""Constraints on drawn operands of fused matrix products: groups, places, and scales that are packed with offsets."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments, split_evenly
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap
from pytest_msprobe.extensions.npu_operators.inputs.moe_routing import groups_of_rows

_MAGNITUDE, _WORD = 0x7FFFFFFF, 0xFFFFFFFF


def packed_scales(drawn: DrawnArguments) -> None:
    """Map scales of 64 bits into the range of their smallest and largest one; drawn bits may be no number."""
    for value in (*drawn.args, *drawn.kwargs.values()):
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype is torch.int64 and bool((tensor >> 46 & 1).any()):
                _mend(tensor)


def _mend(packed: torch.Tensor) -> None:
    ends = torch.stack([packed.min(), packed.max()])
    magnitudes = (ends & _MAGNITUDE).sort().values
    lowest, spread = int(magnitudes[0]), int(magnitudes[1] - magnitudes[0]) + 1
    within = lowest + ((packed & _MAGNITUDE) - lowest) % spread
    signs = packed & (_MAGNITUDE + 1) & int((ends & (_MAGNITUDE + 1)).max())
    packed.copy_((packed & ~_WORD) | signs | within)


def grouped_matmul(drawn: DrawnArguments) -> None:
    """Share out the rows, or with ``group_type`` 2 the columns, of the first operand among the groups."""
    packed_scales(drawn)
    groups = drawn.kwargs.get("group_list")
    x = drawn.get(0, "x")
    first = x[0] if isinstance(x, (list, tuple)) and x else None
    if not isinstance(groups, torch.Tensor) or not isinstance(first, torch.Tensor) or not groups.numel():
        return
    if groups.dim() == 2:
        # Pairs of a group's number and its size.
        groups[:, 0].copy_(torch.arange(len(groups)))
        split_evenly(first.shape[0], groups[:, 1])
    elif drawn.kwargs.get("group_type") == 2:
        _share_out(groups, first.shape[-1], sizes=drawn.kwargs.get("group_list_type") == 1)
    else:
        groups_of_rows("group_list", "group_list_type", all_rows=False)(drawn)


def _share_out(groups: torch.Tensor, total: int, *, sizes: bool) -> None:
    split_evenly(total, groups)
    if not sizes:
        groups.copy_(groups.cumsum(0))


def accumulated_groups(position: int) -> Constraint:
    """Share out what products sum over, the first dimension of argument 2, among the groups at a position."""

    def constraint(drawn: DrawnArguments) -> None:
        operand, groups = drawn.tensor(2, "weight", "x2"), drawn.tensor(position, "group_list")
        if operand is not None and groups is not None and groups.numel():
            _share_out(groups, operand.shape[0], sizes=drawn.kwargs.get("group_list_type") == 1)

    return constraint


def groups_at(position: int, kind: str = "", *, default: int = 0) -> Constraint:
    """Share out the rows of the first argument among the groups at a position, ends or, by ``kind``, sizes."""

    def constraint(drawn: DrawnArguments) -> None:
        packed_scales(drawn)
        rows, groups = drawn.tensor(0, "x"), drawn.tensor(position, "group_list")
        if rows is not None and groups is not None and groups.numel():
            _share_out(groups, rows.shape[0], sizes=(drawn.kwargs.get(kind, default) if kind else default) == 1)

    return constraint


def finalize_routing(drawn: DrawnArguments) -> None:
    """Share out the rows among the groups, and bring the tokens that they belong to into the result."""
    groups_at(2, "group_list_type", default=1)(drawn)
    rows, tokens = drawn.tensor(0, "x"), drawn.kwargs.get("row_index")
    if rows is not None and isinstance(tokens, torch.Tensor):
        wrap(tokens, drawn.kwargs.get("output_bs") or rows.shape[0])


def gathered_weights(drawn: DrawnArguments) -> None:
    """Map the numbers of weights into those that there are, none where they are negative."""
    weights, indices = drawn.tensor(2, "weight_b"), drawn.tensor(3, "indices")
    if weights is not None and indices is not None:
        indices.clamp_(min=-1)
        wrap(indices, weights.shape[0], negative=True)


def vocabulary_targets(drawn: DrawnArguments) -> None:
    """Map targets into a rank's part of the vocabulary."""
    weight = drawn.tensor(2, "weight")
    if weight is not None:
        wrap(drawn.tensor(4, "masked_target"), weight.shape[0])
