"""Operators that compute and communicate in one call: the inputs of all ranks of a group give the results of each.

A definition takes the arguments of each rank's call by name, in the order of the ranks in their group, and the
distance of 1 from the next number of the results' dtype. It returns the results of each rank: a tensor where it is
one that was given, numbers with their bounds where it is computed, None where nothing is promised. The operators'
meaning is that of op-plugin's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.matmul.operands import numbers, scale_and_offset, scaled_product
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import dequantized

# Sums of products of floats are made in float32.
_INNER = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Bounded:
    """Exact results in float64, and how far from each a right one may be."""

    value: Tensor
    error: Tensor

    def moved(self, move: Callable[[Tensor], Tensor]) -> Bounded:
        """Return both after a move of elements."""
        return Bounded(move(self.value), move(self.error))


def product(
    x: Tensor,
    weight: Tensor,
    unit: float,
    *,
    bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    weight_scale: Tensor | None = None,
    bias_is_last: bool = False,
    of_operands: float = 0.0,
) -> Bounded:
    """Return x @ weight with scales and bias, whose result is rounded by ``unit``, the distance of 1 from the next.

    The bound is that of sums in float32 (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.1) and one
    rounding of the result; ``of_operands`` is how far an operand may be from its value, as a share of it.
    """
    factor = None if weight_scale is None else scale_and_offset(weight_scale)[0]
    added = None if bias_is_last else bias
    value = scaled_product(x, weight, factor, x_scale, bias=added)
    magnitudes = [None if scale is None else scale.double().abs() for scale in (factor, x_scale)]
    size = scaled_product(x.double().abs(), weight.double().abs(), *magnitudes)
    if bias is not None and bias_is_last:
        value = value + bias.double()
    if bias is not None and bias.is_floating_point():
        size = size + bias.double().abs()
    steps = x.shape[-1] if x.is_floating_point() else 1
    return Bounded(value, unit * value.abs() + (steps * _INNER + of_operands) * size)


def total(parts: Sequence[Bounded], unit: float) -> Bounded:
    """Return the sum of what ranks give, each sum of two of them rounded by ``unit``."""
    value = torch.stack([part.value for part in parts]).sum(0)
    error = torch.stack([part.error + len(parts) * unit * part.value.abs() for part in parts]).sum(0)
    return Bounded(value, error)


def joined(parts: Sequence[Bounded]) -> Bounded:
    """Return results one below the other."""
    return Bounded(torch.cat([part.value for part in parts]), torch.cat([part.error for part in parts]))


#: The arguments of one rank's call.
Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Segments:
    """Rows whose order within each segment is not defined, and rows behind the last segment that are not."""

    rows: tuple[Tensor, ...]


#: What is known of one result.
Result: TypeAlias = Bounded | Segments | Tensor | None
#: Gives the results of each rank.
Group: TypeAlias = Callable[[Sequence[Arguments], float], list[tuple[Result, ...]]]


def _operand(api: str, call: Arguments, name: str, dtype: str = "", inner: int | None = None) -> Tensor:
    return numbers(api, call[name], call.get(dtype or f"{name}_dtype"), inner)


def _scale(api: str, call: Arguments, name: str) -> Tensor | None:
    return None if call.get(name) is None else numbers(api, call[name], call.get(f"{name}_dtype"))


def npu_mm_all_reduce_base(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return the sum over the ranks of x1 @ x2 + bias, scaled or with a dequantized x2, + x3, for each rank.

    Raises NotImplementedError where the sums are quantized on their way, and for another reduction.
    """
    summed = total([_part_of_sum(call, unit) for call in calls], unit)
    return [(summed,)] * len(calls)


def _part_of_sum(call: Arguments, unit: float) -> Bounded:
    api = "npu_mm_all_reduce_base"
    _refuse_reduction(api, call)
    refuse(api, comm_quant_scale_1=call.get("comm_quant_scale_1"), comm_quant_mode=call.get("comm_quant_mode") or None)
    x1 = _operand(api, call, "x1").flatten(0, -2)
    x2 = _operand(api, call, "x2", inner=x1.shape[-1])
    if call.get("antiquant_scale") is not None:
        scale = call["antiquant_scale"].double()
        x2 = dequantized(x2, scale, call.get("antiquant_offset"), call.get("antiquant_group_size") or 0)
    part = product(
        x1, x2, unit, bias=call.get("bias"), x_scale=_scale(api, call, "pertoken_scale"),
        weight_scale=_scale(api, call, "dequant_scale"),
        # A dequantized weight is rounded to the dtype of x1 before it is multiplied.
        of_operands=0.0 if call.get("antiquant_scale") is None else unit,
    )  # fmt: skip
    shape = (*call["x1"].shape[:-1], part.value.shape[-1])
    part = part.moved(lambda values: values.reshape(shape))
    if call.get("x3") is None:
        return part
    value = part.value + call["x3"].double()
    return Bounded(value, part.error + unit * value.abs())


def _refuse_reduction(api: str, call: Arguments) -> None:
    refuse(api, reduce_op=None if call.get("reduce_op", "sum") == "sum" else call["reduce_op"])


def npu_all_gather_base_mm(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (gathered @ x2 + bias, gathered), gathered = what all ranks give as ``self``, for each rank."""
    return _gathered("npu_all_gather_base_mm", calls, unit)


def npu_all_gather_quant_mm(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (product, gathered, None) as :func:`npu_all_gather_base_mm` does."""
    return [(*results, None) for results in _gathered("npu_all_gather_quant_mm", calls, unit)]


def _gathered(api: str, calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    results: list[tuple[Result, ...]] = []
    whole = torch.cat([call["self"] for call in calls])
    for own in calls:
        refuse(api, gather_index=own.get("gather_index") or None, quant_scale=own.get("quant_scale"))
        parts = [
            _product(api, {**own, "self": sender["self"], "x1_scale": sender.get("x1_scale")}, unit) for sender in calls
        ]
        results.append((joined(parts), whole if own.get("gather_output", True) else None))
    return results


def _product(api: str, call: Arguments, unit: float, left: str = "self", *, bias_is_last: bool = False) -> Bounded:
    """Return the product of a rank's operands."""
    x1 = _operand(api, call, left, "x1_dtype")
    return product(
        x1, _operand(api, call, "x2", inner=x1.shape[-1]), unit, bias=call.get("bias"),
        x_scale=_scale(api, call, "x1_scale"), weight_scale=_scale(api, call, "x2_scale"), bias_is_last=bias_is_last,
    )  # fmt: skip


def npu_mm_reduce_scatter_base(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return each rank's share of the rows of the sum of self @ x2 + bias over the ranks."""
    return _scattered("npu_mm_reduce_scatter_base", calls, unit)


def npu_quant_mm_reduce_scatter(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (share, None) as :func:`npu_mm_reduce_scatter_base` does, a bias added behind the scales."""
    return [(*results, None) for results in _scattered("npu_quant_mm_reduce_scatter", calls, unit, bias_is_last=True)]


def _scattered(
    api: str, calls: Sequence[Arguments], unit: float, *, bias_is_last: bool = False
) -> list[tuple[Result, ...]]:
    for call in calls:
        _refuse_reduction(api, call)
        refuse(api, quant_scale=call.get("quant_scale"))
    summed = total([_product(api, call, unit, bias_is_last=bias_is_last) for call in calls], unit)
    shares = zip(summed.value.chunk(len(calls)), summed.error.chunk(len(calls)), strict=True)
    return [(Bounded(value, error),) for value, error in shares]


def npu_all_to_all_matmul(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (exchanged @ x2 + bias, exchanged): rank r has the r-th part of the rows of each rank, side by side."""
    return _exchanged_first("npu_all_to_all_matmul", calls, unit)


def npu_all_to_all_quant_matmul(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return what :func:`npu_all_to_all_matmul` does, of operands with blocks of 32.

    Raises NotImplementedError for rows that are quantized on their way.
    """
    api = "npu_all_to_all_quant_matmul"
    for call in calls:
        refuse(api, x1_quant_mode=None if call.get("x1_quant_mode") == _MX else call.get("x1_quant_mode") or "none")
    return _exchanged_first(api, calls, unit)


# The number of the quantization in blocks of 32.
_MX = 6


def _exchanged_first(api: str, calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    results: list[tuple[Result, ...]] = []
    for rank, own in enumerate(calls):
        x1 = torch.cat([call["x1"].chunk(len(calls))[rank] for call in calls], 1)
        scale = own.get("x1_scale")
        if scale is not None:
            scale = torch.cat([call["x1_scale"].chunk(len(calls))[rank] for call in calls], 1)
        result = _product(api, {**own, "x1": x1, "x1_scale": scale}, unit, "x1", bias_is_last=True)
        results.append((result, x1 if own.get("all2all_out_flag", True) else None))
    return results


def npu_matmul_all_to_all(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return for rank r the r-th part of the columns of x1 @ x2 + bias of each rank, one below the other."""
    return _exchanged_last("npu_matmul_all_to_all", calls, unit)


def npu_quant_matmul_all_to_all(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return what :func:`npu_matmul_all_to_all` does, of quantized operands, the bias added behind the scales."""
    for call in calls:
        refuse("npu_quant_matmul_all_to_all", common_scale=call.get("common_scale"), x1_offset=call.get("x1_offset"))
    return _exchanged_last("npu_quant_matmul_all_to_all", calls, unit)


def _exchanged_last(api: str, calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    products = [_product(api, call, unit, "x1", bias_is_last=True) for call in calls]
    return [
        (joined([whole.moved(lambda part, rank=rank: part.chunk(len(calls), 1)[rank]) for whole in products]),)  # type: ignore[misc]
        for rank in range(len(calls))
    ]


def npu_moe_distribute_dispatch(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (rows, None, None, counts, None, None, None): the tokens that chose each expert of a rank, in any order.

    counts are those of each expert, their sums up to it with ``expert_token_nums_type`` 0. Raises NotImplementedError
    for tokens that are quantized or masked, ranks of shared experts, a second group and experts of other kinds.
    """
    api = "npu_moe_distribute_dispatch"
    for call in calls:
        _refuse_kinds(api, call)
    tokens = torch.cat([call["x"] for call in calls])
    experts = torch.cat([call["expert_ids"] for call in calls])
    per_rank = calls[0]["moe_expert_num"] // len(calls)
    results: list[tuple[Result, ...]] = []
    for rank, own in enumerate(calls):
        segments = tuple(
            tokens[(experts == expert).any(-1)] for expert in range(rank * per_rank, (rank + 1) * per_rank)
        )
        counts = torch.tensor([len(rows) for rows in segments])
        counts = counts if own.get("expert_token_nums_type", 1) == 1 else counts.cumsum(0)
        results.append((Segments(segments), None, None, counts, None, None, None))
    return results


def _refuse_kinds(api: str, call: Arguments) -> None:
    options = (
        "quant_mode", "shared_expert_rank_num", "x_active_mask", "elastic_info", "zero_expert_num", "copy_expert_num",
        "const_expert_num",
    )  # fmt: skip
    has_second_group = (call.get("tp_world_size") or 0) > 1
    kinds = {name: None if isinstance(value := call.get(name), int) and not value else value for name in options}
    refuse(api, tp_world_size=call["tp_world_size"] if has_second_group else None, **kinds)


def _npu_distribute_barrier(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return what each rank gave."""
    return [(call["x_ref"],) for call in calls]
