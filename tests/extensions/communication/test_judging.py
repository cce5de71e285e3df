"""Verdicts on collective calls that are written on the spot: the odd rank is named."""

from __future__ import annotations

import pytest

from tests.support.dumps.communications import Judge, X, Y, all_reduce, broadcast, call, failing, outcomes
from tests.support.dumps.dump_files import Json, tensor_around, value
from tests.support.dumps.ranks import group


def test_ranks_that_agree_pass(judge: Judge) -> None:
    results = judge(*[all_reduce() | broadcast()] * 3)
    assert outcomes(results) == {"0:all_reduce.0": "pass", "0:broadcast.0": "pass"}
    assert results["0:all_reduce.0"].reason == "calls and values agree, by statistics"


@pytest.mark.parametrize(
    ("odd", "reported"),
    [
        (broadcast(), "operation differs: rank 2: broadcast; ranks 0, 1, 3: all_reduce"),
        (
            call("all_reduce", [tensor_around(4, dtype="torch.float64")], [tensor_around(4, dtype="torch.float64")]),
            "dtype differs: rank 2: float64; ranks 0, 1, 3: float32",
        ),
        (
            call("all_reduce", [tensor_around(5)], [tensor_around(5)]),
            "shape differs: rank 2: (5,); ranks 0, 1, 3: (4,)",
        ),
        (
            all_reduce(op={"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}),
            "reduction differs: rank 2: MAX; ranks 0, 1, 3: SUM",
        ),
        (
            all_reduce(tensor_around(4, at=3.0)),
            "output differs: rank 2: max 3 min -3 mean 0.75 norm 6; ranks 0, 1, 3: max 2 min -2 mean 0.5 norm 4",
        ),
    ],
)
def test_the_odd_rank_is_named(judge: Judge, odd: Json, reported: str) -> None:
    results = judge(all_reduce(), all_reduce(), odd, all_reduce())
    assert failing(results) == {"0:all_reduce.0": reported}
    assert results["0:all_reduce.0"].extras["communication"]["ranks"] == [2]


def test_another_root_is_reported(judge: Judge) -> None:
    results = judge(broadcast(), broadcast(src=1), broadcast())
    assert failing(results) == {"0:broadcast.0": "root differs: rank 1: 1; ranks 0, 2: 0"}


def test_of_two_ranks_that_differ_none_is_the_odd_one(judge: Judge) -> None:
    results = judge(all_reduce(X), all_reduce(Y))
    assert results["0:all_reduce.0"].extras["communication"]["ranks"] == []


def test_what_a_root_gave_is_right_however_few_hold_it(judge: Judge) -> None:
    results = judge(broadcast(X), broadcast(Y), broadcast(Y))
    assert results["0:broadcast.0"].extras["communication"]["ranks"] == [1, 2]
    assert results["0:broadcast.0"].reason.startswith("output differs: rank 0 gave max 1 ")


def test_checksums_are_compared_where_there_are_some(judge: Judge) -> None:
    one, other = (all_reduce(Y | {"md5": text}) for text in ("0badcafe", "deadbeef"))
    assert judge(one, one)["0:all_reduce.0"].reason == "calls and values agree, by checksums"
    assert failing(judge(one, one, other)) == {
        "0:all_reduce.0": "output differs: rank 2: deadbeef; ranks 0, 1: 0badcafe"
    }


def test_sums_that_differ_by_rounding_warn(judge: Judge) -> None:
    results = judge(all_reduce(Y), all_reduce(Y), all_reduce(Y | {"Norm": 4.0000002}))
    assert outcomes(results) == {"0:all_reduce.0": "warn"}


def test_nan_equals_nan(judge: Judge) -> None:
    bad = dict.fromkeys(("Max", "Min", "Mean", "Norm"), "NaN")
    assert outcomes(judge(all_reduce(Y | bad), all_reduce(Y | bad))) == {"0:all_reduce.0": "pass"}
    assert outcomes(judge(all_reduce(Y | bad), all_reduce(Y))) == {"0:all_reduce.0": "fail"}


def test_values_that_were_not_recorded_are_no_pass(judge: Judge) -> None:
    bare = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4]}
    assert outcomes(judge(*[all_reduce(bare)] * 2)) == {"0:all_reduce.0": "skip"}


def test_a_rank_without_a_dump_is_reported_and_no_failure(judge: Judge) -> None:
    results = judge(*[all_reduce(group=group(0, 1, 5))] * 2)
    assert outcomes(results) == {"0:all_reduce.0": "warn"}
    assert results["0:all_reduce.0"].reason == "no dump of rank 5, which took part"


def test_of_a_group_whose_ranks_are_not_recorded_no_one_is_missing(judge: Judge) -> None:
    in_group = all_reduce(group=value("tp-0-1"))
    assert outcomes(judge(in_group, in_group, {})) == {"0:all_reduce.0": "pass"}
    assert outcomes(judge(in_group, {}, {})) == {"0:all_reduce.0": "skip"}


def test_an_exception_in_a_call_is_a_failure(judge: Judge) -> None:
    raised = {
        "Distributed.all_reduce.0.forward": {"input_args": [X], "exception": "RuntimeError: timed out", "output": []}
    }
    assert failing(judge(all_reduce(), raised, all_reduce())) == {"0:all_reduce.0": "rank 1 raised an exception in it"}


def test_what_mindspore_returns_is_compared(judge: Judge) -> None:
    def reducing(at: float) -> Json:
        given, returned = (tensor_around(4, dtype="Float32", at=each) for each in (1.0, at))
        body = {
            "input_args": [given, value("sum"), value("hccl_world_group")],
            "input_kwargs": {},
            "output": [returned],
        }
        return {"Distributed.all_reduce.0.forward": body}

    assert outcomes(judge(reducing(2.0), reducing(2.0))) == {"0:all_reduce.0": "pass"}
    assert failing(judge(reducing(2.0), reducing(2.0), reducing(3.0)))["0:all_reduce.0"].startswith(
        "output differs: rank 2"
    )
