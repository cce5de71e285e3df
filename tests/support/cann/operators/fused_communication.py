"""Operators that compute and communicate, for all ranks of a group at once: each rank's kernel, then what is moved.

They are no kernels of one card: a function takes the calls of all ranks, and returns the results of each as that rank's
card has them, rounded to its dtypes at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.packed import read_scale

Results = tuple[Tensor | None, ...]


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    out = x.float() @ weight.float()
    return (out if bias is None else out + bias.float()).to(dtype or x.dtype)


def _scaled(x: Tensor, weight: Tensor, rows: Tensor | None, columns: Tensor | None, dtype: torch.dtype) -> Tensor:
    out = x.double() @ weight.double()
    if columns is not None:
        out = out * torch.from_numpy(read_scale(columns)[0])
    return (out if rows is None else out * rows.double()).to(dtype)


def _local(call: Call, x: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return the product of a rank, with scales where it has some."""
    options = call.kwargs
    if options.get("x2_scale") is None:
        return _product(x, call.args[1], options.get("bias"))
    dtype = options.get("output_dtype") or options.get("y_dtype") or torch.bfloat16
    return _scaled(x, call.args[1], rows, options["x2_scale"], dtype)


def group_npu_mm_all_reduce_base(calls: Sequence[Call]) -> list[Results]:
    """Return the sum of all products, added up in the order of the ranks."""
    parts = []
    for call in calls:
        x1, x2, options = call.args[0], call.args[1], call.kwargs
        if options.get("dequant_scale") is not None:
            rows = options.get("pertoken_scale")
            part = _scaled(x1, x2, None if rows is None else rows[:, None], options["dequant_scale"], torch.bfloat16)
        elif options.get("antiquant_scale") is not None:
            weight = (x2.float() + options["antiquant_offset"].float()) * options["antiquant_scale"].float()
            part = _product(x1, weight)
        else:
            part = _product(x1, x2, options.get("bias"))
        parts.append(part if options.get("x3") is None else part + options["x3"])
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return [(out,)] * len(calls)


def group_npu_all_gather_base_mm(calls: Sequence[Call]) -> list[Results]:
    """Return the products with everything that was gathered, and that."""
    gathered = torch.cat([call.args[0] for call in calls])
    scales = [call.kwargs.get("x1_scale") for call in calls]
    rows = None if scales[0] is None else torch.cat([each for each in scales if each is not None])
    found = []
    for call in calls:
        wants = call.kwargs.get("gather_output", True)
        found.append((_local(call, gathered, rows), gathered if wants else gathered.new_empty(0)))
    return found


def group_npu_all_gather_quant_mm(calls: Sequence[Call]) -> list[Results]:
    """Return the products, what was gathered, and nothing."""
    return [(*each, torch.empty(0)) for each in group_npu_all_gather_base_mm(calls)]


def group_npu_mm_reduce_scatter_base(calls: Sequence[Call]) -> list[Results]:
    """Return each rank's rows of the sum of all products."""
    parts = [_local(call, call.args[0], call.kwargs.get("x1_scale")) for call in calls]
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return [(share,) for share in out.chunk(len(calls))]


def group_npu_quant_mm_reduce_scatter(calls: Sequence[Call]) -> list[Results]:
    """Return each rank's rows, and nothing."""
    return [(*each, torch.empty(0)) for each in group_npu_mm_reduce_scatter_base(calls)]


def group_npu_all_to_all_matmul(calls: Sequence[Call]) -> list[Results]:
    """Return products of rows whose columns come from all ranks, and these rows."""
    found = []
    for rank, call in enumerate(calls):
        size = call.args[0].shape[0] // len(calls)
        sent = torch.stack([each.args[0].view(len(calls), size, -1)[rank] for each in calls])
        own = sent.permute(1, 0, 2).reshape(size, -1)
        found.append((_product(own, call.args[1], call.kwargs.get("bias")), own))
    return found


def group_npu_matmul_all_to_all(calls: Sequence[Call]) -> list[Results]:
    """Return the columns of a rank of all products, one below the other."""
    products = [_product(call.args[0], call.args[1], call.kwargs.get("bias")) for call in calls]
    return _columns(products)


def group_npu_quant_matmul_all_to_all(calls: Sequence[Call]) -> list[Results]:
    """Return the columns of a rank of all scaled products, one below the other."""
    products = [
        _scaled(*call.args[:2], call.kwargs["x1_scale"][:, None], call.kwargs["x2_scale"], torch.float32)
        for call in calls
    ]
    return _columns([each + call.kwargs["bias"] for each, call in zip(products, calls, strict=True)])


def _columns(products: list[Tensor]) -> list[Results]:
    size = products[0].shape[1] // len(products)
    return [
        (torch.cat([each[:, rank * size : (rank + 1) * size] for each in products]),) for rank in range(len(products))
    ]


def _rows(call: Call, counts: str, ranks: int) -> list[list[tuple[int, int]]]:
    """Return by rank and expert the first row and the one behind the last."""
    ends = list(accumulate(call.kwargs[counts]))
    places = list(zip([0, *ends], ends, strict=False))
    experts = len(ends) // ranks
    return [places[rank * experts : (rank + 1) * experts] for rank in range(ranks)]


def group_npu_alltoallv_gmm(calls: Sequence[Call]) -> list[Results]:
    """Return products of rows that came to their experts, of the shared expert, and these rows."""
    found: list[Results] = []
    for rank, call in enumerate(calls):
        outs, arrived = [], []
        for expert, weight in enumerate(call.args[1]):
            for sender in calls:
                start, end = _rows(sender, "send_counts", len(calls))[rank][expert]
                arrived.append(sender.args[0][start:end])
                outs.append(_product(arrived[-1], weight.mT if call.kwargs.get("trans_gmm_weight") else weight))
        own = None if "mm_x" not in call.kwargs else _product(call.kwargs["mm_x"], call.kwargs["mm_weight"])
        found.append((torch.cat(outs), own, torch.cat(arrived)))
    return found


def group_npu_gmm_alltoallv(calls: Sequence[Call]) -> list[Results]:
    """Return products of experts that went back to the ranks of their rows."""
    by_rank: list[dict[tuple[int, int], Tensor]] = []
    for call in calls:
        parts, start = {}, 0
        for expert, weight in enumerate(call.args[1]):
            for target in range(len(calls)):
                count = call.kwargs["send_counts"][target * len(call.args[1]) + expert]
                parts[target, expert] = _product(call.args[0][start : start + count], weight)
                start += count
        by_rank.append(parts)
    experts = range(len(calls[0].args[1]))
    return [
        (torch.cat([sender[rank, expert] for sender in by_rank for expert in experts]), None)
        for rank in range(len(calls))
    ]


def group_npu_moe_distribute_dispatch(calls: Sequence[Call]) -> list[Results]:
    """Return the rows that chose the experts of a rank, with room behind them, and how many each expert has."""
    each = calls[0].args[5] // len(calls)
    found: list[Results] = []
    for rank in range(len(calls)):
        rows, counts = [], []
        for expert in range(rank * each, (rank + 1) * each):
            chosen = [call.args[0][i] for call in calls for i, own in enumerate(call.args[1]) if expert in own.tolist()]
            counts.append(len(chosen))
            rows += chosen
        room = torch.full((3, calls[0].args[0].shape[1]), 99.0, dtype=calls[0].args[0].dtype)
        found.append((torch.cat([torch.stack(rows), room]), None, None, torch.tensor(counts), None, None, None))
    return found


def results_of(name: str, calls: Sequence[Call]) -> list[Results]:
    """Return what the card of each rank has after a call of an operator, ``name`` with or without its variant."""
    found: list[Results] = globals()[f"group_{name.partition('-')[0]}"](calls)
    return found
