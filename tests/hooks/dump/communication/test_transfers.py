from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.communication.endpoints import Communication, End, in_layers, match_transfers

WORLD = frozenset({0, 1, 2, 3})


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
