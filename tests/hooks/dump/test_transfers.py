from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import ForwardRecord, forward_record
from msprobe_hooks.dump.transfers import (
    Communication,
    End,
    ends_of,
    in_layers,
    is_communication,
    is_written,
    match_transfers,
)

WORLD = frozenset({0, 1, 2, 3})
TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}


def value(number: Any) -> dict[str, Any]:
    return {"type": type(number).__name__, "value": number}


def group(*ranks: int) -> dict[str, Any]:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "0"}


def record(api: str, *args: Any, number: int = 0, **kwargs: Any) -> ForwardRecord:
    body = {"input_args": list(args), "input_kwargs": kwargs, "output": []}
    return forward_record(f"Distributed.{api}.{number}.forward", body)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Distributed.all_reduce.0.forward", True),
        ("MintDistributed.all_reduce.0.forward", True),
        ("Distributed.all_reduce.0.backward", False),
        ("Torch.mm.0.forward", False),
    ],
)
def test_communication_is_told_by_name(name: str, is_one: bool) -> None:
    assert is_communication(name) is is_one


def test_a_receive_buffer_is_only_written_to() -> None:
    assert is_written("Distributed.recv.0.forward", "0")
    assert not is_written("Distributed.send.0.forward", "0")


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (record("send", TENSOR, value(1)), record("recv", TENSOR, value(0))),
        (record("isend", TENSOR, dst=value(1)), record("irecv", TENSOR, src=value(0))),
        (record("send", TENSOR, dst=value(1), tag=value(7)), record("recv", TENSOR, src=value(0), tag=value(7))),
        (
            record("send", TENSOR, group=group(0, 1), group_dst=value(1)),
            record("recv", TENSOR, group=group(0, 1), group_src=value(0)),
        ),
    ],
)
def test_a_send_and_its_receive_are_the_ends_of_one_transfer(sent: ForwardRecord, received: ForwardRecord) -> None:
    (gives,), (takes,) = ends_of(sent, 0, WORLD), ends_of(received, 1, WORLD)
    assert gives.key == takes.key
    assert (gives.gives, gives.takes, takes.gives, takes.takes) == (True, False, False, True)
    assert gives.expected == takes.expected == {0, 1}


def test_a_receive_from_anybody_has_no_end() -> None:
    assert ends_of(record("recv", TENSOR), 1, WORLD) == ()


@pytest.mark.parametrize(("api", "role"), [("broadcast", "src"), ("scatter", "src")])
def test_a_root_gives_and_the_others_take(api: str, role: str) -> None:
    ends = [ends_of(record(api, TENSOR, **{role: value(2)}), rank, WORLD)[0] for rank in range(4)]
    assert [end.gives for end in ends] == [False, False, True, False]
    assert [end.takes for end in ends] == [True, True, False, True]


def test_to_a_root_all_give_and_it_takes() -> None:
    ends = [ends_of(record("reduce", TENSOR, dst=value(1)), rank, WORLD)[0] for rank in range(4)]
    assert all(end.gives for end in ends)
    assert [end.takes for end in ends] == [False, True, False, False]


def test_the_group_of_all_ranks_and_the_default_group_are_one() -> None:
    named, default = (
        ends_of(record("all_reduce", TENSOR, **kwargs), 0, WORLD)[0] for kwargs in ({"group": group(0, 1, 2, 3)}, {})
    )
    assert named.key == default.key


def test_a_group_s_ranks_take_part_and_no_others() -> None:
    (end,) = ends_of(record("all_reduce", TENSOR, group=group(1, 3)), 1, WORLD)
    assert end.expected == {1, 3}


def test_a_name_outside_the_grammar_is_refused() -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        ends_of(ForwardRecord("Distributed.forward", [], {}, [], {}), 0, WORLD)


def all_reduces(rank: int, count: int) -> list[Communication]:
    return [Communication(rank, f"all_reduce.{n}", (End(("all_reduce", ""), True, True, WORLD),)) for n in range(count)]


def test_the_nth_call_of_a_collective_belongs_to_the_nth_of_other_ranks() -> None:
    transfers = match_transfers([all_reduces(0, 2), all_reduces(1, 3)])
    together = [[(node.rank, node.name) for node, _ in members] for members in transfers.values()]
    assert together == [
        [(0, "all_reduce.0"), (1, "all_reduce.0")],
        [(0, "all_reduce.1"), (1, "all_reduce.1")],
        [(1, "all_reduce.2")],
    ]


def p2p(rank: int, source: int, destination: int) -> Communication:
    end = End(("p2p", source, destination, 0), rank == source, rank == destination)
    return Communication(rank, f"{source}>{destination}", (end,))


def layers(*ranks: list[Communication]) -> list[list[tuple[int, str]]]:
    return [[(node.rank, node.name) for node in nodes] for nodes in in_layers(ranks, match_transfers(ranks))]


def test_a_receive_comes_in_the_layer_of_its_send_and_before_what_follows_it() -> None:
    assert layers([p2p(0, 0, 1)], [p2p(1, 0, 1), p2p(1, 1, 2)], [p2p(2, 1, 2)]) == [
        [(0, "0>1"), (1, "0>1")],
        [(1, "1>2"), (2, "1>2")],
    ]


def test_records_that_wait_for_each_other_go_ahead_with_the_earliest() -> None:
    crossed = layers([p2p(0, 0, 1), p2p(0, 1, 0)], [p2p(1, 1, 0), p2p(1, 0, 1)])
    assert sorted(node for nodes in crossed for node in nodes) == [(0, "0>1"), (0, "1>0"), (1, "0>1"), (1, "1>0")]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), max_size=20))
def test_every_record_is_in_one_layer_whatever_is_missing(sent: list[tuple[int, int, bool, bool]]) -> None:
    ranks: list[list[Communication]] = [[] for _ in WORLD]
    for source, destination, has_send, has_receive in sent:
        if has_send:
            ranks[source].append(p2p(source, source, destination))
        if has_receive and source != destination:
            ranks[destination].append(p2p(destination, source, destination))
    found = [id(node) for nodes in in_layers(ranks, match_transfers(ranks)) for node in nodes]
    assert sorted(found) == sorted(id(node) for records in ranks for node in records)
