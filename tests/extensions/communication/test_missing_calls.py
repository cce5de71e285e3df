"""Calls that a rank lacks, makes in another group or makes in another order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from pytest_msprobe.extensions.communication import judging
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.judging import judge_exchange
from pytest_msprobe.extensions.communication.messages import StepCommunication, read_step
from pytest_msprobe.extensions.communication.signature_check import Finding, structural_findings
from tests.support.dumps.communications import Judge, X, Y, all_reduce, broadcast, call, failing, outcomes
from tests.support.dumps.dump_files import tensor_around, value
from tests.support.dumps.ranks import group, step


def test_a_rank_that_skips_a_call_is_the_only_failure(judge: Judge) -> None:
    whole = all_reduce() | broadcast() | all_reduce(tensor_around(4, at=5.0), 1)
    short = all_reduce() | all_reduce(tensor_around(4, at=5.0), 1)
    results = judge(whole, whole, short)
    assert failing(results) == {"0:broadcast.0": "rank 2 has no such call; it went from all_reduce.0 to all_reduce.1"}
    assert results["0:broadcast.0"].extras["communication"]["last"] == "last that agrees: all_reduce.0 among ranks 0-2"


def test_a_call_in_another_group_is_reported_where_it_lacks(judge: Judge) -> None:
    others, odd = all_reduce(), all_reduce(group=group(2, 3))
    results = judge(others, others, odd, others)
    assert failing(results) == {
        "0:all_reduce.0": "rank 2 has no such call; it called all_reduce.0 among ranks 2, 3",
        "2:all_reduce.0": "rank 3 has no such call; it called all_reduce.0 among ranks 0-3",
    }


def test_of_many_calls_that_a_rank_lacks_each_is_held_next_to_others_a_few_times(
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


def test_calls_in_another_order_are_reported_with_what_they_follow(judge: Judge) -> None:
    plain = all_reduce() | broadcast() | all_reduce(Y, 1)
    swapped = broadcast() | all_reduce() | all_reduce(Y, 1)
    assert failing(judge(plain, plain, swapped)) == {
        "0:all_reduce.0": "order differs: rank 2: after broadcast.0; ranks 0, 1: first",
        "0:broadcast.0": "order differs: rank 2: first; ranks 0, 1: after all_reduce.0",
    }


def test_a_rank_that_never_came_to_a_group_is_said_to_have_ended_in_another(judge: Judge) -> None:
    pair = all_reduce(group=group(0, 1)) | all_reduce(group=group(0, 1), number=1)
    failed = all_reduce(group=group(0, 1))
    failed |= {"Distributed.all_reduce.1.forward": all_reduce(group=group(0, 1), number=1).popitem()[1]}
    failed["Distributed.all_reduce.1.forward"] |= {"exception": "RuntimeError: closed"}
    others = all_reduce(group=group(2, 3)) | all_reduce(group=group(2, 3), number=1)
    last = all_reduce(number=2)
    results = failing(judge(pair | last, failed, others | last, others | last))
    assert results["0:all_reduce.2"] == (
        "rank 1 has no such call; it raised an exception in all_reduce.1, its last communication"
    )


def test_a_rank_that_skips_the_last_call_of_a_group_is_followed_to_its_end(judge: Judge) -> None:
    whole = all_reduce() | broadcast() | all_reduce(group=group(0, 1), number=1)
    short = all_reduce() | all_reduce(group=group(0, 1), number=1)
    results = failing(judge(whole, short, all_reduce() | broadcast()))
    assert results["0:broadcast.0"] == (
        "rank 1 has no such call; it went from all_reduce.0 to all_reduce.1 and last communicated in all_reduce.1"
    )


def test_a_recording_that_ends_early_lacks_what_follows(judge: Judge) -> None:
    whole = all_reduce() | broadcast()
    results = judge(whole, all_reduce() | {"Torch.mm.0.forward": {"input_args": [], "output": []}}, whole)
    assert failing(results) == {
        "0:broadcast.0": "rank 1 has no such call; it last communicated in all_reduce.0; its last record is "
        "Torch.mm.0.forward"
    }
