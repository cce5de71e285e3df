"""Calls that compute and communicate: each rank has what the inputs of all ranks give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from msprobe_hooks.dump.communication.jsonl import find_steps
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.communication.fused_check import FusedSkip
from pytest_msprobe.extensions.communication.judging import judge_exchange
from pytest_msprobe.extensions.communication.messages import read_step
from pytest_msprobe.results.result import DirectionResult
from tests.support.cann.example_call import Call
from tests.support.cann.examples.fused_communication import RANKS
from tests.support.cann.operators.fused_communication import Results, results_of
from tests.support.dumps.dump_files import Json, value, write_dump

Fault = Callable[[list[list[Tensor | None]]], object]


def calls_of(name: str) -> list[Call]:
    return RANKS[name](torch.Generator().manual_seed(3))


def element(tensor: Tensor, folder: Path, file: str, *, with_file: bool) -> Json:
    wide = tensor.double()
    statistics = {"Max": None, "Min": None, "Mean": None, "Norm": None}
    if tensor.numel():
        numbers = wide.max(), wide.min(), wide.mean(), wide.norm()
        statistics = {key: float(each) for key, each in zip(statistics, numbers, strict=True)}
    found = {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape), **statistics}
    if with_file:
        (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
        torch.save(tensor.contiguous(), folder / "dump_tensor_data" / file)
        found["data_name"] = file
    return found | {"requires_grad": False}


def write_rank(
    folder: Path, name: str, call: Call, results: Sequence[Tensor | None], *, with_files: bool = True
) -> None:
    record = f"NPU.{name.partition('-')[0]}.0.forward"

    def recorded(what: str, given: Any) -> Any:
        if isinstance(given, Tensor):
            return element(given, folder, f"{record}.{what}.pt", with_file=with_files)
        if isinstance(given, torch.dtype):
            return {"type": "torch.dtype", "value": str(given)}
        return value(given)

    body = {
        "input_args": [recorded(f"input.{place}", each) for place, each in enumerate(call.args)],
        "input_kwargs": {key: recorded(f"input.{key}", each) for key, each in call.kwargs.items()},
        "output": [recorded(f"output.{place}", each) for place, each in enumerate(results)],
    }
    write_dump(folder, {record: body}, task="tensor" if with_files else "statistics")


def judged(folder: Path, ranks: int) -> DirectionResult:
    dumps = [read_dump(folder / f"rank{rank}" / "dump.json") for rank in range(ranks)]
    (step,) = find_steps(dumps)
    known = read_step(step)
    (exchange,) = known.exchanges
    return judge_exchange(exchange.lead.name, exchange, known)


def judge(
    folder: Path, name: str, fault: Fault | None = None, *, with_files: bool = True, ranks: int = 2
) -> DirectionResult:
    calls = calls_of(name)
    results: list[list[Tensor | None]] = [list(each) for each in results_of(name, calls)]
    if fault is not None:
        fault(results)
    for rank, (call, own) in enumerate(zip(calls[:ranks], results, strict=False)):
        write_rank(folder / f"rank{rank}", name, call, own, with_files=with_files)
    return judged(folder, ranks)


@pytest.mark.parametrize("name", RANKS)
def test_results_of_correct_ranks_agree_with_their_inputs(name: str, tmp_path: Path) -> None:
    result = judge(tmp_path, name)
    assert (result.verdict.outcome, result.reason) == ("pass", "calls and values agree, by inputs")


def last_row(results: list[list[Tensor | None]]) -> None:
    """On rank 1 a row of the first result is another one's."""
    first = results[1][0]
    assert first is not None
    first = first.clone()
    first[1] = first[0]
    results[1][0] = first


@pytest.mark.parametrize("name", RANKS)
def test_a_row_of_one_rank_that_is_another_s_is_found(name: str, tmp_path: Path) -> None:
    result = judge(tmp_path, name, last_row)
    assert result.verdict.outcome == "fail"
    assert "result 0 of rank 1 is not what comes of the input of all ranks" in result.reason or (
        "result 0 of rank 0 is not" in result.reason and "all_reduce" in name
    )
    assert result.extras["communication"]["ranks"][-1] == 1


@pytest.mark.parametrize(("name", "place"), [("npu_all_gather_base_mm", 1), ("npu_alltoallv_gmm", 2)])
def test_what_is_only_moved_has_the_bits_that_were_given(name: str, place: int, tmp_path: Path) -> None:
    def one_step_away(results: list[list[Tensor | None]]) -> None:
        moved = results[0][place]
        assert moved is not None
        moved = moved.clone()
        moved[0, 0] *= 1.002
        results[0][place] = moved

    result = judge(tmp_path, name, one_step_away)
    assert result.verdict.outcome == "fail"
    assert f"result {place} of rank 0 is not what comes of the input of all ranks: 1 of " in result.reason


def test_rows_of_an_expert_may_have_any_order_and_no_other_values(tmp_path: Path) -> None:
    def swapped(results: list[list[Tensor | None]]) -> None:
        rows, counts = results[0][0], results[0][3]
        assert rows is not None
        assert counts is not None
        assert int(counts[0]) > 1
        order = [1, 0, *range(2, len(rows))]
        results[0][0] = rows[order]

    assert judge(tmp_path / "order", "npu_moe_distribute_dispatch", swapped).verdict.outcome == "pass"

    def counted(results: list[list[Tensor | None]]) -> None:
        counts = results[1][3]
        assert counts is not None
        results[1][3] = counts + torch.tensor([1, 0])

    reason = judge(tmp_path / "count", "npu_moe_distribute_dispatch", counted).reason
    assert "result 3 of rank 1 is not what comes of the input of all ranks: 1 of 2 numbers differ" in reason


def test_without_tensors_what_all_ranks_hold_alike_is_compared(tmp_path: Path) -> None:
    skipped = judge(tmp_path / "right", "npu_mm_all_reduce_base", with_files=False)
    assert (skipped.skip, skipped.verdict.outcome) == (FusedSkip.NO_TENSORS, "skip")
    failed = judge(tmp_path / "wrong", "npu_mm_all_reduce_base", last_row, with_files=False)
    assert failed.verdict.outcome == "fail"
    assert failed.reason.startswith("result 0 differs: rank 1: max")


def test_a_group_whose_other_ranks_have_no_dump_is_judged_by_what_arrived(tmp_path: Path) -> None:
    right = judge(tmp_path / "right", "npu_alltoallv_gmm", ranks=1)
    assert (right.skip, right.reason.partition(": ")[2]) == (
        FusedSkip.NO_RANKS,
        "what arrived gives the recorded products",
    )
    wrong = judge(tmp_path / "wrong", "npu_alltoallv_gmm", flip, ranks=1)
    assert "result 0 of rank 0 is not what comes of what arrived there" in wrong.reason
    nothing = judge(tmp_path / "nothing", "npu_mm_reduce_scatter_base", ranks=1)
    assert nothing.skip is FusedSkip.NO_RANKS


def flip(results: list[list[Tensor | None]]) -> None:
    first = results[0][0]
    assert first is not None
    results[0][0] = first.flip(0)


def test_what_has_no_definition_is_named(tmp_path: Path) -> None:
    calls = [
        Call((*call.args,), {"comm_quant_scale_1": torch.ones(6).half()}) for call in calls_of("npu_mm_all_reduce_base")
    ]
    for rank, (call, own) in enumerate(zip(calls, results_of("npu_mm_all_reduce_base", calls), strict=True)):
        write_rank(tmp_path / f"rank{rank}", "npu_mm_all_reduce_base", call, own)
    result = judged(tmp_path, 2)
    assert result.skip is FusedSkip.NO_DEFINITION
    assert "npu_mm_all_reduce_base has no golden definition with comm_quant_scale_1" in result.reason


def test_rows_that_are_sent_back_in_an_order_of_their_own_are_left_to_the_calls(tmp_path: Path) -> None:
    for rank in range(2):
        call = Call((torch.ones(2, 4),) * 5 + ("group", 2, rank, 2))
        write_rank(tmp_path / f"rank{rank}", "npu_moe_distribute_combine_v2", call, [torch.ones(2, 4)])
    result = judged(tmp_path, 2)
    assert result.skip is FusedSkip.NO_DEFINITION
    assert "npu_moe_distribute_combine_v2 sends rows back in an order that no documentation gives" in result.reason


def test_a_rank_that_lacks_the_call_is_found(tmp_path: Path) -> None:
    (call, _), (own, _) = (
        calls_of("npu_all_to_all_matmul"),
        results_of("npu_all_to_all_matmul", calls_of("npu_all_to_all_matmul")),
    )
    write_rank(tmp_path / "rank0", "npu_all_to_all_matmul", call, own)
    write_dump(tmp_path / "rank1", {}, task="tensor")
    assert "rank 1 has no such call" in judged(tmp_path, 2).reason


def test_a_barrier_needs_no_values(tmp_path: Path) -> None:
    results: Mapping[int, Results] = {rank: (torch.ones(1),) for rank in range(2)}
    for rank, own in results.items():
        write_rank(tmp_path / f"rank{rank}", "_npu_distribute_barrier", Call((torch.ones(1), "group", 2)), own)
    assert judged(tmp_path, 2).verdict.outcome == "pass"
