"""Verdicts on communications that are written on the spot."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.exchanges import Exchange
from pytest_msprobe.modes.communication import judging
from pytest_msprobe.modes.communication.judging import judge_exchange
from pytest_msprobe.modes.communication.steps import StepCommunication, read_step
from pytest_msprobe.modes.communication.structure import Finding, structural_findings
from pytest_msprobe.results.result import DirectionResult
from tests.support.dumps import Json, tensor_around, value
from tests.support.ranks import group, step

Judge: TypeAlias = Callable[..., Mapping[str, DirectionResult]]

X = tensor_around(4, at=1.0)
Y = tensor_around(4, at=2.0)


def call(api: str, args: list[Any], after: list[Any], number: int = 0, **kwargs: Any) -> Json:
    """Return a record of communication; the named arguments are the same after the call."""
    body = {"input_args": args, "input_kwargs": kwargs, "output": [*after, *kwargs.values()]}
    return {f"Distributed.{api}.{number}.forward": body}


def all_reduce(after: Json = Y, number: int = 0, **kwargs: Any) -> Json:
    return call("all_reduce", [X], [after], number, **kwargs)


def broadcast(after: Json = X, given: Json = X, number: int = 0, src: int = 0) -> Json:
    return call("broadcast", [given], [after], number, src=value(src))


def failing(results: Mapping[str, DirectionResult]) -> dict[str, str]:
    return {name: each.reason for name, each in results.items() if each.verdict.outcome == "fail"}


def outcomes(results: Mapping[str, DirectionResult]) -> dict[str, str]:
    return {name: each.verdict.outcome for name, each in results.items()}


def test_ranks_that_agree_pass(judge: Judge) -> None:
    results = judge(*[all_reduce() | broadcast()] * 3)
    assert outcomes(results) == {"0:all_reduce.0": "pass", "0:broadcast.0": "pass"}
    assert results["0:all_reduce.0"].reason == "calls and values agree, by statistics"


@pytest.mark.parametrize(
    ("odd", "told"),
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
def test_the_odd_rank_is_named(judge: Judge, odd: Json, told: str) -> None:
    results = judge(all_reduce(), all_reduce(), odd, all_reduce())
    assert failing(results) == {"0:all_reduce.0": told}
    assert results["0:all_reduce.0"].extras["communication"]["ranks"] == [2]


def test_another_root_is_told(judge: Judge) -> None:
    results = judge(broadcast(), broadcast(src=1), broadcast())
    assert failing(results) == {"0:broadcast.0": "root differs: rank 1: 1; ranks 0, 2: 0"}


def test_of_two_ranks_that_differ_none_is_the_odd_one(judge: Judge) -> None:
    results = judge(all_reduce(X), all_reduce(Y))
    assert results["0:all_reduce.0"].extras["communication"]["ranks"] == []


def test_what_a_root_gave_is_right_however_few_hold_it(judge: Judge) -> None:
    results = judge(broadcast(X), broadcast(Y), broadcast(Y))
    assert results["0:broadcast.0"].extras["communication"]["ranks"] == [1, 2]
    assert results["0:broadcast.0"].reason.startswith("output differs: rank 0 gave max 1 ")


def test_a_rank_that_skips_a_call_is_the_only_failure(judge: Judge) -> None:
    whole = all_reduce() | broadcast() | all_reduce(tensor_around(4, at=5.0), 1)
    short = all_reduce() | all_reduce(tensor_around(4, at=5.0), 1)
    results = judge(whole, whole, short)
    assert failing(results) == {"0:broadcast.0": "rank 2 has no such call; it went from all_reduce.0 to all_reduce.1"}
    assert results["0:broadcast.0"].extras["communication"]["last"] == "last that agrees: all_reduce.0 among ranks 0-2"


def test_a_call_in_another_group_is_told_where_it_lacks(judge: Judge) -> None:
    others, odd = all_reduce(), all_reduce(group=group(2, 3))
    results = judge(others, others, odd, others)
    assert failing(results) == {
        "0:all_reduce.0": "rank 2 has no such call; it called all_reduce.0 among ranks 2, 3",
        "2:all_reduce.0": "rank 3 has no such call; it called all_reduce.0 among ranks 0-3",
    }


def test_of_many_calls_that_a_rank_lacks_each_is_held_beside_others_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Counter[int]()

    def counted(exchange: Exchange, step: StepCommunication) -> Iterator[Finding]:
        seen[exchange.order] += 1
        return structural_findings(exchange, step)

    monkeypatch.setattr(judging, "structural_findings", counted)
    calls = [all_reduce(number=number) for number in range(200)]
    known = read_step(step(*[{k: v for each in calls[:end] for k, v in each.items()} for end in (200, 5, 200)]))
    results = [judge_exchange(one.lead.name, one, known) for one in known.exchanges]
    assert [result.verdict.outcome for result in results] == ["pass"] * 5 + ["fail"] * 195
    lines = {line for result in results[5:] for line in result.verdict.reason.splitlines() if "agrees" in line}
    assert lines == {"last that agrees: all_reduce.4 among ranks 0-2"}
    assert max(seen.values()) <= 2


def test_a_call_in_a_group_that_a_rank_is_no_member_of_is_no_communication(judge: Judge) -> None:
    inside = all_reduce(group=group(0, 1)) | all_reduce(number=1)
    outside = call("all_reduce", [X], [X], group=value(-100)) | all_reduce(number=1)
    assert outcomes(judge(inside, inside, outside)) == {"0:all_reduce.0": "pass", "0:all_reduce.1": "pass"}


def test_calls_in_another_order_are_told_with_what_they_follow(judge: Judge) -> None:
    plain = all_reduce() | broadcast() | all_reduce(Y, 1)
    swapped = broadcast() | all_reduce() | all_reduce(Y, 1)
    assert failing(judge(plain, plain, swapped)) == {
        "0:all_reduce.0": "order differs: rank 2: after broadcast.0; ranks 0, 1: first",
        "0:broadcast.0": "order differs: rank 2: first; ranks 0, 1: after all_reduce.0",
    }


def test_a_recording_that_ends_early_lacks_what_follows(judge: Judge) -> None:
    whole = all_reduce() | broadcast()
    results = judge(whole, all_reduce() | {"Torch.mm.0.forward": {"input_args": [], "output": []}}, whole)
    assert failing(results) == {
        "0:broadcast.0": "rank 1 has no such call; it communicated last in all_reduce.0; its last record is "
        "Torch.mm.0.forward"
    }


def sent(to: int, what: Json = X, **kwargs: Any) -> Json:
    return call("send", [what, value(to)], [what, value(to)], **kwargs)


def received(source: int, what: Json = X, **kwargs: Any) -> Json:
    return call("recv", [None, value(source)], [what, value(source)], **kwargs)


def test_what_is_received_is_what_was_sent(judge: Judge) -> None:
    assert failing(judge(sent(1), received(0))) == {}
    results = judge(sent(1), received(0, Y))
    assert results["0:send.0"].extras["communication"]["ranks"] == [1]
    assert failing(results)["0:send.0"].startswith("what was sent differs: rank 0 gave max 1 ")


@pytest.mark.parametrize(
    ("receiving", "told"),
    [
        (received(0, tensor_around(5)), "shape differs: rank 1: (5,); rank 0: (4,)"),
        (received(0, tag=value(3)), "rank 1 has no such receive; it called recv.0 from rank 0 to rank 1, tag 3"),
        ({}, "rank 1 has no such receive; it did not communicate; its dump has no record"),
    ],
)
def test_a_receive_that_does_not_fit_its_send_is_told(judge: Judge, receiving: Json, told: str) -> None:
    assert failing(judge(sent(1), receiving))["0:send.0"] == told


def test_a_message_that_may_have_been_received_from_any_rank_is_no_failure(judge: Judge) -> None:
    anybody = call("recv", [None], [X])
    assert outcomes(judge(sent(1), anybody)) == {"0:send.0": "skip"}


def test_messages_of_a_batch_are_communications_of_their_own(judge: Judge) -> None:
    def batch(rank: int, arrived: Json) -> Json:
        def message(op: str, what: Json | None) -> Json:
            return {"class_type": "torch.distributed.P2POp", "tensor": what, "op": op, "peer": 1 - rank, "tag": 0}

        return call(
            "batch_isend_irecv",
            [[message("isend", X), message("irecv", X)]],
            [[message("isend", X), message("irecv", arrived)]],
        )

    assert outcomes(judge(batch(0, X), batch(1, X))) == {
        "0:batch_isend_irecv.0 from rank 0 to rank 1": "pass",
        "0:batch_isend_irecv.0 from rank 1 to rank 0": "pass",
    }
    assert set(failing(judge(batch(0, X), batch(1, Y)))) == {"0:batch_isend_irecv.0 from rank 0 to rank 1"}


def test_parts_that_are_gathered_are_held_beside_what_each_rank_gave(judge: Judge) -> None:
    def gathering(rank: int, parts: list[Json]) -> Json:
        own = [X, Y][rank]
        return call("all_gather", [None, own], [parts, own])

    assert failing(judge(gathering(0, [X, Y]), gathering(1, [X, Y]))) == {}
    results = judge(gathering(0, [X, Y]), gathering(1, [Y, Y]))
    assert results["0:all_gather.0"].extras["communication"]["ranks"] == [1]
    assert failing(results)["0:all_gather.0"].startswith("output 0 differs: rank 0 gave max 1 ")


def test_what_all_ranks_hold_alike_is_held_beside_what_was_given(judge: Judge) -> None:
    gathered = [call("all_gather", [None, own], [[X, Y], own]) for own in (X, X)]
    reasons = failing(judge(*gathered)) | failing(judge(*[broadcast(after=Y, given=X)] * 2))
    assert {name: reason.partition(" gave ")[0] for name, reason in reasons.items()} == {
        "0:all_gather.0": "output 1 differs: rank 1",
        "0:broadcast.0": "output differs: rank 0",
    }


def test_what_is_scattered_and_gathered_arrives_as_it_was_given(judge: Judge) -> None:
    root = call("scatter", [None, [X, Y]], [X, [X, Y]], src=value(0))
    assert failing(judge(root, call("scatter", [None], [Y], src=value(0)))) == {}
    assert "0:scatter.0" in failing(judge(root, call("scatter", [None], [X], src=value(0))))
    gathering = call("gather", [X, None], [X, [X, Y]], dst=value(0))
    assert failing(judge(gathering, call("gather", [Y], [Y], dst=value(0)))) == {}
    assert "0:gather.0" in failing(judge(gathering, call("gather", [X], [X], dst=value(0))))


def test_parts_for_each_rank_arrive_there(judge: Judge) -> None:
    def exchanging(given: list[Json], taken: list[Json]) -> Json:
        return call("all_to_all", [None, given], [taken, given])

    assert failing(judge(exchanging([X, Y], [X, X]), exchanging([X, Y], [Y, Y]))) == {}
    results = judge(exchanging([X, Y], [X, X]), exchanging([X, Y], [X, Y]))
    assert failing(results)["0:all_to_all.0"].startswith("what rank 0 gave to rank 1 differs")


def test_split_sizes_fit_on_both_sides(judge: Judge) -> None:
    def exchanging(rows: int, gives: list[int], takes: list[int]) -> Json:
        tensors = [tensor_around(sum(takes), at=1.0), tensor_around(rows, at=1.0)]
        return call(
            "all_to_all_single", [None, tensors[1], value(takes), value(gives)], [*tensors, value(takes), value(gives)]
        )

    assert failing(judge(exchanging(4, [1, 3], [1, 2]), exchanging(2, [2, 0], [3, 0]))) == {}
    assert failing(judge(exchanging(4, [1, 3], [1, 2]), exchanging(2, [2, 0], [4, 0]))) == {
        "0:all_to_all_single.0": "split sizes differ: rank 0 gives 3 rows to rank 1, which takes 4"
    }


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


def test_a_rank_without_a_dump_is_told_and_no_failure(judge: Judge) -> None:
    results = judge(*[all_reduce(group=group(0, 1, 5))] * 2)
    assert outcomes(results) == {"0:all_reduce.0": "warn"}
    assert results["0:all_reduce.0"].reason == "there is no dump of rank 5, which took part"


def test_of_a_group_whose_ranks_are_not_recorded_nobody_is_missing(judge: Judge) -> None:
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


# Laws.

kinds = st.sampled_from(["all_reduce", "broadcast", "message", "pair"])


def honest(plan: list[tuple[str, int]], size: int) -> list[Json]:
    """Return what ranks record that carry out a plan, each entry a kind of communication and a number."""
    ranks: list[Json] = [{} for _ in range(size)]

    def add(rank: int, api: str, args: list[Any], after: list[Any], **kwargs: Any) -> None:
        number = sum(name.startswith(f"Distributed.{api}.") for name in ranks[rank])
        ranks[rank] |= call(api, args, after, number, **kwargs)

    for kind, number in plan:
        result = tensor_around(number + 1, at=number)
        source, target = number % size, (number + 1) % size
        if kind == "message" and source != target:
            add(source, "send", [result, value(target)], [result, value(target)])
            add(target, "recv", [None, value(source)], [result, value(source)])
        elif kind == "pair":
            members = sorted({source, target})
            for rank in members:
                add(rank, "all_reduce", [result], [result], group=group(*members))
        elif kind == "broadcast":
            for rank in range(size):
                add(rank, "broadcast", [result], [result], src=value(source))
        elif kind == "all_reduce":
            for rank in range(size):
                add(rank, "all_reduce", [result], [result])
    return ranks


plans = st.lists(st.tuples(kinds, st.integers(0, 6)), max_size=12)


@given(plans, st.integers(1, 6))
def test_an_honest_run_of_any_size_has_no_failure(judge: Judge, plan: list[tuple[str, int]], size: int) -> None:
    assert set(outcomes(judge(*honest(plan, size))).values()) <= {"pass"}


def without(records: Json, place: int) -> Json:
    return {name: body for i, (name, body) in enumerate(records.items()) if i != place}


@given(
    st.lists(st.tuples(st.sampled_from(["all_reduce", "broadcast"]), st.integers(0, 6)), min_size=1, max_size=8),
    st.integers(3, 5),
    st.integers(0, 100),
    st.randoms(use_true_random=False),
)
def test_another_numbering_of_ranks_changes_no_verdict(
    judge: Judge, plan: list[tuple[str, int]], size: int, at: int, shuffler: random.Random
) -> None:
    ranks = honest([(kind, 0 if kind == "broadcast" else number) for kind, number in plan], size)
    ranks[0] = without(ranks[0], at % len(plan))
    # Roots are ranks: those of a broadcast stay where they are.
    order = [*range(1, size)]
    shuffler.shuffle(order)
    renamed = [ranks[0], *(ranks[rank] for rank in order)]
    assert sorted(outcomes(judge(*ranks)).values()) == sorted(outcomes(judge(*renamed)).values())


@given(plans, st.integers(3, 5), st.data())
def test_one_call_that_a_rank_skips_is_named_with_it(
    judge: Judge, plan: list[tuple[str, int]], size: int, data: st.DataObject
) -> None:
    # Calls that differ from their neighbours: which of equal ones is missing, nobody can tell.
    plan = [("all_reduce", i) for i, _ in enumerate([*plan, plan])]
    ranks = honest(plan, size)
    odd, place = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, len(plan) - 1))
    ranks[odd] = without(ranks[odd], place)
    ((_, result),) = ((name, each) for name, each in judge(*ranks).items() if each.verdict.outcome == "fail")
    assert result.extras["communication"]["ranks"] == [odd]
    assert result.extras["communication"]["order"] == place
