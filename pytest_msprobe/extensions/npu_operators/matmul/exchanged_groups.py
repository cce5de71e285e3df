"""Grouped products whose rows go to the ranks of their experts before, or come back from there behind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.matmul.between_ranks import Arguments, Bounded, Result, joined, product
from pytest_msprobe.extensions.npu_operators.matmul.operands import numbers


def npu_alltoallv_gmm(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (arrived @ gmm_weight by expert, mm_x @ mm_weight, arrived), rows in the order of experts, then of ranks.

    ``send_counts`` and ``recv_counts`` hold for each rank, and each expert there, how many rows go to it, or come from
    it; rows that are sent have that order. The second result is None without operands, the third without
    ``permute_out_flag``.
    """
    return _arriving("npu_alltoallv_gmm", calls, unit)


def npu_alltoallv_quant_gmm(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return what :func:`npu_alltoallv_gmm` does, of floats of 8 bits, each operand with one scale.

    Raises NotImplementedError for scales in blocks.
    """
    return _arriving("npu_alltoallv_quant_gmm", calls, unit)


def npu_gmm_alltoallv(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return (gmm_x @ gmm_weight by expert, sent back, mm_x @ mm_weight): the way back of :func:`npu_alltoallv_gmm`.

    Rows of ``gmm_x`` are in the order of experts, then of the ranks to which they go (assumed: that in which they
    arrived); results in that of ranks, then of their experts.
    """
    return _returning("npu_gmm_alltoallv", calls, unit)


def npu_quant_gmm_alltoallv(calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    """Return what :func:`npu_gmm_alltoallv` does, of floats of 8 bits, each operand with one scale."""
    return _returning("npu_quant_gmm_alltoallv", calls, unit)


def _counts(call: Arguments, name: str, ranks: int) -> list[list[int]]:
    """Return how many rows go to, or come from, each expert of each rank."""
    numbers_of = [int(number) for number in call[name]]
    experts = len(numbers_of) // ranks
    return [numbers_of[rank * experts : (rank + 1) * experts] for rank in range(ranks)]


def _arriving(api: str, calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    sent = []
    for call in calls:
        _refuse_kinds(api, call)
        counts = _counts(call, "send_counts", len(calls))
        parts = iter(torch.split(call["gmm_x"], [number for of_rank in counts for number in of_rank]))
        sent.append([[next(parts) for _ in of_rank] for of_rank in counts])
    results: list[tuple[Result, ...]] = []
    for rank, own in enumerate(calls):
        by_expert = [torch.cat(parts) for parts in zip(*(of_sender[rank] for of_sender in sent), strict=True)]
        arrived = torch.cat(by_expert) if by_expert else own["gmm_x"][:0]
        results.append(products_of_arrived(api, own, arrived, [len(rows) for rows in by_expert], unit))
    return results


def products_of_arrived(
    api: str, call: Arguments, arrived: Tensor, sizes: Sequence[int], unit: float
) -> tuple[Result, ...]:
    """Return the results of a rank whose experts have so many of the rows that arrived."""
    flag = call.get("permute_out_flag", False)
    return _grouped(api, call, arrived, sizes, unit), _own(api, call, unit), arrived if flag else None


def sizes_of_arrived(call: Arguments, ranks: int) -> list[int]:
    """Return how many rows each expert of a rank has, by what it is said to receive."""
    return [sum(of_expert) for of_expert in zip(*_counts(call, "recv_counts", ranks), strict=True)]


def _returning(api: str, calls: Sequence[Arguments], unit: float) -> list[tuple[Result, ...]]:
    sent: list[list[list[Bounded]]] = []
    for call in calls:
        _refuse_kinds(api, call)
        by_expert = list(zip(*_counts(call, "send_counts", len(calls)), strict=True))
        result = _grouped(api, call, call["gmm_x"], [sum(of_expert) for of_expert in by_expert], unit)
        ends = list(accumulate(number for of_expert in by_expert for number in of_expert))
        places = zip([0, *ends], ends, strict=False)
        parts = iter([result.moved(lambda values, a=a, b=b: values[a:b]) for a, b in places])  # type: ignore[misc]
        sent.append([[next(parts) for _ in of_expert] for of_expert in by_expert])
    results: list[tuple[Result, ...]] = []
    for rank, own in enumerate(calls):
        back = [of_expert[rank] for of_sender in sent for of_expert in of_sender]
        results.append((joined(back), _own(api, own, unit)))
    return results


def _refuse_kinds(api: str, call: Arguments) -> None:
    in_blocks = call.get("gmm_x_quant_mode") not in (None, 0, 1)
    refuse(
        api,
        gmm_x_quant_mode=call.get("gmm_x_quant_mode") if in_blocks else None,
        send_counts_tensor=call.get("send_counts_tensor"),
        comm_quant_mode=call.get("comm_quant_mode") or None,
    )


def _grouped(api: str, call: Arguments, rows: Tensor, sizes: Sequence[int], unit: float) -> Bounded:
    weights = numbers(api, call["gmm_weight"], call.get("gmm_weight_dtype"))
    weights = weights.mT if call.get("trans_gmm_weight") else weights
    left = numbers(api, rows, call.get("gmm_x_dtype"))
    scales: dict[str, Any] = {"x_scale": call.get("gmm_x_scale"), "weight_scale": call.get("gmm_weight_scale")}
    parts = torch.split(left, list(sizes))
    return joined([product(part, weight, unit, **scales) for part, weight in zip(parts, weights, strict=True)])


def _own(api: str, call: Arguments, unit: float) -> Bounded | None:
    """Return the product of the shared expert, which no other rank has a part in."""
    if call.get("mm_x") is None or call.get("mm_weight") is None:
        return None
    weight = numbers(api, call["mm_weight"], call.get("mm_weight_dtype"))
    return product(
        numbers(api, call["mm_x"], call.get("mm_x_dtype")),
        weight.mT if call.get("trans_mm_weight") else weight,
        unit,
        x_scale=call.get("mm_x_scale"),
        weight_scale=call.get("mm_weight_scale"),
    )
