"""Tokens that are quantized on their way to experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.values.number_formats import INT8, store
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from torch import Tensor


def npu_moe_init_routing_quant(
    x: Tensor, expert_idx: Tensor,
    *, scale: Tensor | None = None, offset: Tensor | None = None, active_num: int = 1024,
    expert_capacity: int = 0, expert_num: int = 256, drop_pad_mode: int = 0, expert_tokens_num_mode: int = 0,
    expert_tokens_before_capacity_flag: bool = False, quant_mode: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (expanded_x, expanded_row_idx, tokens by expert, those before the capacity, scales) of x (rows, h).

    The rows * k copies are ordered by expert, equals as they stood, and expanded_row_idx (int32) says where each went.
    expanded_x is int8 of the first ``active_num`` copies, of all where it is 0. With ``drop_pad_mode`` 1 it is
    (expert_num, expert_capacity, h) with zeros where an expert has fewer tokens, and what is more is dropped: then
    expanded_row_idx is assumed to be -1. ``quant_mode`` 0 gives round(x * scale + offset), 1 rows with their scales of
    x * ``scale`` (experts or 1, h). Counts (int32) are, without capacities and by ``expert_tokens_num_mode``, none (0),
    those up to each expert (1) or those of each (2), and with capacities, if the flag is set, those of each. Nothing is
    promised of what is None.
    """
    refuse("npu_moe_init_routing_quant", quant_mode=quant_mode if quant_mode not in (0, 1) else None)
    experts, order = expert_idx.flatten().sort(stable=True)
    places = order.argsort()
    counts = torch.bincount(experts, minlength=expert_num)
    tokens = before = None
    if drop_pad_mode:
        before = counts.int() if expert_tokens_before_capacity_flag else None
        within = torch.arange(len(experts), device=x.device) - (counts.cumsum(0) - counts)[experts]
        slots = (experts * expert_capacity + within).masked_fill(within >= expert_capacity, -1)
        taken = order[slots >= 0]
        kept = slots[slots >= 0]
        places = slots[places]
    else:
        tokens = (None, counts.cumsum(0).int(), counts.int())[expert_tokens_num_mode]
        taken = order[: active_num or None]
        kept = torch.arange(len(taken), device=x.device)
    numbers, scales = _quantized(x, taken, expert_idx, scale, offset, quant_mode)
    if drop_pad_mode:
        numbers = numbers.new_zeros(expert_num * expert_capacity, x.shape[1]).index_copy(0, kept, numbers)
        numbers = numbers.reshape(expert_num, expert_capacity, -1)
        scales = None if scales is None else scales.new_zeros(expert_num * expert_capacity).index_copy(0, kept, scales)
    return numbers, places.int(), tokens, before, scales


def _quantized(
    x: Tensor, copies: Tensor, expert_idx: Tensor, scale: Tensor | None, offset: Tensor | None, quant_mode: int
) -> tuple[Tensor, Tensor | None]:
    """Return the numbers of copies, each of row copy // k, and the scales of them."""
    rows = at_least_float32(x)[copies // expert_idx.shape[1]]
    if quant_mode == 0:
        rows = rows if scale is None else rows * at_least_float32(scale)
        return store(rows if offset is None else rows + at_least_float32(offset), INT8), None
    if scale is not None:
        smooth = at_least_float32(scale)
        rows = rows * (smooth if len(smooth) == 1 else smooth[expert_idx.flatten()[copies].long()])
    return quantized_by_row(rows)
