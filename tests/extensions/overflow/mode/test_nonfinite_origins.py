"""First culprits: cases that are known by construction, and random programs with one planted fault."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.dump.communication.jsonl import find_steps
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from pytest_msprobe.extensions.overflow.nonfinite_origins import Analysis, Phase, Source, analyse
from tests.support.dumps.dump_files import Json, value
from tests.support.dumps.ranks import call, dump, group, step, tensor

Search = Callable[..., Analysis]

CLEAN, BAD = tensor(), tensor(bad=True)
FAULT = {"Torch.exp.0.forward": call([CLEAN], [BAD])}
PASSED_ON = {"Torch.relu.0.forward": call([BAD], [BAD])}


def first_culprits(analysis: Analysis) -> list[tuple[int, str]]:
    """Return rank and name of each."""
    return [(culprit.rank, culprit.name) for culprit in analysis.culprits]


def all_reduce(before: Json, after: Json, number: int = 0, **kwargs: Any) -> Json:
    return {f"Distributed.all_reduce.{number}.forward": call([before], [after], **kwargs)}


def send(to: int, given: Json = BAD, number: int = 0, api: str = "send") -> Json:
    return {f"Distributed.{api}.{number}.forward": call([given], [given], dst=value(to))}


def receive(source: int, taken: Json = BAD, number: int = 0, api: str = "recv") -> Json:
    return {f"Distributed.{api}.{number}.forward": call([None], [taken], src=value(source))}


def test_a_rank_without_communication_has_its_first_fault_before_any(search: Search) -> None:
    analysis = search({**PASSED_ON, **FAULT, "Torch.log.0.forward": call([CLEAN], [BAD])})
    assert first_culprits(analysis) == [(0, "Torch.exp.0.forward")]
    assert analysis.culprits[0].phase is Phase.BEFORE


def test_each_rank_may_have_a_culprit_before_communication(search: Search) -> None:
    quiet = {**FAULT, **all_reduce(CLEAN, BAD)}
    loud = {**FAULT, **all_reduce(BAD, BAD)}
    analysis = search(quiet, loud, all_reduce(CLEAN, BAD))
    assert first_culprits(analysis) == [(1, "Torch.exp.0.forward"), (0, "Torch.exp.0.forward")]


def test_a_rank_that_may_have_received_what_arises_on_another_comes_after_it(search: Search) -> None:
    taken = {"Torch.mul.0.forward": call([tensor(Max="NaN")], [tensor(Max="NaN")])}
    made = {"Torch.log.0.forward": call([CLEAN], [tensor(Max="NaN")])}
    assert first_culprits(search(taken, made)) == [(1, "Torch.log.0.forward"), (0, "Torch.mul.0.forward")]


def test_a_fault_between_communications_is_the_culprit_and_not_what_received_it(search: Search) -> None:
    start = all_reduce(CLEAN, CLEAN)
    giver = {**start, **FAULT, **send(1)}
    taker = {**start, **receive(0), **PASSED_ON, **send(2)}
    analysis = search(giver, taker, {**start, **receive(1)})
    assert first_culprits(analysis) == [(0, "Torch.exp.0.forward")]
    assert analysis.culprits[0].phase is Phase.DURING
    assert analysis.received == {
        (1, "Distributed.recv.0.forward"): Source(0, "Distributed.send.0.forward"),
        (2, "Distributed.recv.0.forward"): Source(1, "Distributed.send.0.forward"),
    }


def test_a_fault_that_no_one_receives_is_found_as_well(search: Search) -> None:
    analysis = search({**all_reduce(CLEAN, CLEAN), **FAULT, **all_reduce(CLEAN, CLEAN, 1)}, {})
    assert first_culprits(analysis) == [(0, "Torch.exp.0.forward")]


def test_a_sum_that_overflows_is_the_collectives_own(search: Search) -> None:
    records = {**all_reduce(CLEAN, CLEAN), **all_reduce(CLEAN, BAD, 1)}
    analysis = search(records, records)
    assert first_culprits(analysis) == [
        (0, "Distributed.all_reduce.1.forward"),
        (1, "Distributed.all_reduce.1.forward"),
    ]
    assert analysis.received == {}


def test_a_fault_after_the_last_communication(search: Search) -> None:
    analysis = search(all_reduce(CLEAN, CLEAN), {**all_reduce(CLEAN, CLEAN), **FAULT})
    assert [(culprit.rank, culprit.phase) for culprit in analysis.culprits] == [(1, Phase.AFTER)]


@pytest.mark.parametrize(("sends", "receives"), [("send", "irecv"), ("isend", "recv"), ("isend", "irecv")])
def test_asynchronous_and_blocking_calls_find_each_other(search: Search, sends: str, receives: str) -> None:
    analysis = search({**PASSED_ON, **send(1, api=sends)}, receive(0, api=receives))
    assert (1, f"Distributed.{receives}.0.forward") in analysis.received


def test_batched_operations_are_taken_apart(search: Search) -> None:
    def operation(name: str, peer: int, held: Any) -> Json:
        return {"class_type": "torch.distributed.P2POp", "tensor": held, "op": name, "peer": peer, "tag": 0}

    def batch(rank: int, given: Json, taken: Json) -> Json:
        before = [operation("isend", 1 - rank, given), operation("irecv", 1 - rank, None)]
        after = [operation("isend", 1 - rank, given), operation("irecv", 1 - rank, taken)]
        return {"Distributed.batch_isend_irecv.0.forward": call([before], [after])}

    analysis = search({**FAULT, **batch(0, BAD, CLEAN)}, batch(1, CLEAN, BAD))
    name = "Distributed.batch_isend_irecv.0.forward"
    assert analysis.received == {(1, name): Source(0, name)}


def test_a_root_by_position_by_name_and_by_place_in_its_group(search: Search) -> None:
    for arguments, kwargs in (
        ([value(1)], {}),
        ([], {"src": value(1)}),
        ([], {"group": group(0, 1), "group_src": value(1)}),
    ):
        takes = {"Distributed.broadcast.0.forward": call([CLEAN, *arguments], [BAD], **kwargs)}
        gives = {"Distributed.broadcast.0.forward": call([BAD, *arguments], [BAD], **kwargs)}
        received = search(takes, gives).received
        assert received == {(0, "Distributed.broadcast.0.forward"): Source(1, "Distributed.broadcast.0.forward")}, (
            arguments,
            kwargs,
        )


def test_what_a_receiver_held_before_is_given_to_no_one(search: Search) -> None:
    garbage = {"Distributed.broadcast.0.forward": call([BAD], [CLEAN], src=value(0))}
    root = {"Distributed.broadcast.0.forward": call([CLEAN], [BAD], src=value(0))}
    assert first_culprits(search(root, garbage)) == [(0, "Distributed.broadcast.0.forward")]


def test_groups_do_not_mix(search: Search) -> None:
    others = all_reduce(BAD, BAD, group=group(2, 3))
    mine = all_reduce(CLEAN, BAD, group=group(0, 1))
    analysis = search(mine, mine, others, others)
    assert analysis.received == {}
    assert first_culprits(analysis) == [
        (0, "Distributed.all_reduce.0.forward"),
        (1, "Distributed.all_reduce.0.forward"),
    ]


def test_the_group_of_all_ranks_may_be_named_or_left_out(search: Search) -> None:
    analysis = search({**PASSED_ON, **all_reduce(BAD, BAD)}, all_reduce(CLEAN, BAD, group=group(0, 1)))
    assert (1, "Distributed.all_reduce.0.forward") in analysis.received


def test_a_rank_whose_dump_is_missing_is_reported() -> None:
    dumps = {0: dump({**receive(7)}, "step0/rank0")}
    (found,) = find_steps(dumps.values())
    (culprit,) = analyse(found, load_rules()).culprits
    assert culprit.missing == (7,)


def test_a_malformed_record_is_left_out_and_named(search: Search) -> None:
    broken = {"Torch.exp.0.forward": {"input_args": "inf", "output": ["Infinity", "NaN"]}}
    analysis = search({**broken, "Distributed.all_reduce.0.forward": {"input_args": 3}}, FAULT)
    assert analysis.malformed == ((0, "Torch.exp.0.forward"), (0, "Distributed.all_reduce.0.forward"))
    assert first_culprits(analysis) == [(1, "Torch.exp.0.forward")]


def test_the_api_is_named_and_not_the_module_around_it(search: Search) -> None:
    module = {"Module.net.Net.forward.0": call([CLEAN], [BAD])}
    assert first_culprits(search({**FAULT, **module})) == [(0, "Torch.exp.0.forward")]
    assert first_culprits(search(module)) == [(0, "Module.net.Net.forward.0")]


def test_a_module_in_which_they_arise_comes_before_the_apis_that_ran_later(search: Search) -> None:
    module = {"Module.net.Net.forward.0": call([CLEAN], [BAD])}
    assert first_culprits(search({**module, **FAULT})) == [(0, "Module.net.Net.forward.0")]


def test_a_gradient_within_a_module_is_named_though_the_module_was_written_first(search: Search) -> None:
    gradient = {"input": [CLEAN], "output": [BAD]}
    written = {"Module.net.Net.backward.0": gradient, "Torch.exp.0.backward": gradient}
    assert first_culprits(search(written)) == [(0, "Torch.exp.0.backward")]


class Program:
    """A random program of ranks that compute and communicate, of which one call makes inf from finite values.

    What each rank holds is one tensor, bad or not; the records are those of a run in which inf spreads as it must.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.world = self.random.randint(1, 5)
        self.bad = [False] * self.world
        self.records: list[Json] = [{} for _ in range(self.world)]
        self.numbers: Counter[tuple[int, str]] = Counter()
        self.received: set[tuple[int, str]] = set()
        fault = self.random.randrange(size)
        for at in range(size):
            if at == fault:
                self.plant()
            elif self.world > 1 and self.random.random() < 0.6:
                self.random.choice([self.transfer, self.reduce_all, self.give_all])()
            else:
                rank = self.random.randrange(self.world)
                self.add(rank, "Torch.relu", self.bad[rank])

    def add(self, rank: int, api: str, after: bool, before: bool | None = None, **kwargs: Any) -> str:
        name = f"{api}.{self.numbers[rank, api]}.forward"
        self.numbers[rank, api] += 1
        held = self.bad[rank] if before is None else before
        self.records[rank][name] = call([tensor(bad=held)], [tensor(bad=after)], **kwargs)
        return name

    def take(self, rank: int, api: str, after: bool, *, reads: bool = True, **kwargs: Any) -> None:
        arrives = after and not (reads and self.bad[rank])
        name = self.add(rank, api, after, **kwargs)
        if arrives:
            self.received.add((rank, name))
        self.bad[rank] = after

    def plant(self) -> None:
        rank = self.random.randrange(self.world)
        self.culprit = (rank, self.add(rank, "Torch.exp", True))
        self.bad[rank] = True

    def transfer(self) -> None:
        source, target = self.random.sample(range(self.world), 2)
        self.add(source, "Distributed.send", self.bad[source], dst=value(target))
        # The buffer is overwritten, whatever it held.
        self.take(target, "Distributed.recv", self.bad[source], reads=False, src=value(source))

    def reduce_all(self) -> None:
        members = sorted(self.random.sample(range(self.world), self.random.randint(2, self.world)))
        after = any(self.bad[rank] for rank in members)
        for rank in members:
            self.take(rank, "Distributed.all_reduce", after, group=group(*members))

    def give_all(self) -> None:
        root = self.random.randrange(self.world)
        after = self.bad[root]
        for rank in range(self.world):
            self.take(rank, "Distributed.broadcast", after or self.bad[rank], src=value(root))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 40))
def test_the_one_fault_of_a_program_is_named_whatever_communicates(seed: int, size: int) -> None:
    program = Program(seed, size)
    analysis = analyse(step(*program.records), load_rules())
    assert first_culprits(analysis) == [program.culprit]
    assert set(analysis.received) == program.received


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), lost=st.floats(0, 1))
def test_records_and_ranks_that_are_missing_or_out_of_order_end_the_search_in_no_error(seed: int, lost: float) -> None:
    program = Program(seed, 40)
    chance = random.Random(seed)
    for records in program.records:
        kept = [name for name in records if chance.random() >= lost]
        chance.shuffle(kept)
        records_left = {name: records[name] for name in kept}
        records.clear()
        records.update(records_left)
    analysis = analyse(step(*program.records), load_rules())
    rank, name = program.culprit
    assert name not in program.records[rank] or analysis.culprits


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "type value Max Min Norm shape dtype op peer tag group_ranks input_args output input".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_NAMES = st.sampled_from(
    """Torch.exp.0.forward Torch.exp.0.backward Distributed.send.0.forward Distributed.recv.forward nonsense
    Distributed.batch_isend_irecv.0.forward Distributed.broadcast.1.forward Module.net.Net.forward.0 Module""".split()
)


@settings(max_examples=200, deadline=None)
@given(ranks=st.lists(st.dictionaries(_NAMES, _JSON, max_size=4), min_size=1, max_size=3))
@pytest.mark.slow
def test_whatever_records_hold_the_search_ends(ranks: list[Json]) -> None:
    poisoned = [{name: {"input_args": [BAD], "output": [BAD, body]} for name, body in rank.items()} for rank in ranks]
    for records in (ranks, poisoned):
        analysis = analyse(step(*records), load_rules())
        assert len(analysis.malformed) <= sum(map(len, records))
