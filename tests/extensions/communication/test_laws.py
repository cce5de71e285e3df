"""What holds of runs of any size and plan: honest ones pass, and one call that a rank skips is named."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.dumps.communications import Judge, call, outcomes
from tests.support.dumps.dump_files import Json, tensor_around, value
from tests.support.dumps.ranks import group

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
    # Calls that differ from their neighbours: which of equal ones is missing, no one can tell.
    plan = [("all_reduce", i) for i, _ in enumerate([*plan, plan])]
    ranks = honest(plan, size)
    odd, place = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, len(plan) - 1))
    ranks[odd] = without(ranks[odd], place)
    ((_, result),) = ((name, each) for name, each in judge(*ranks).items() if each.verdict.outcome == "fail")
    assert result.extras["communication"]["ranks"] == [odd]
    assert result.extras["communication"]["order"] == place
