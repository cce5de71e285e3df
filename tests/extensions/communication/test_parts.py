"""Parts that are gathered, scattered and exchanged are what each rank gave."""

from __future__ import annotations

from tests.support.dumps.communications import Judge, X, Y, broadcast, call, failing
from tests.support.dumps.dump_files import Json, tensor_around, value


def test_parts_that_are_gathered_are_held_next_to_what_each_rank_gave(judge: Judge) -> None:
    def gathering(rank: int, parts: list[Json]) -> Json:
        own = [X, Y][rank]
        return call("all_gather", [None, own], [parts, own])

    assert failing(judge(gathering(0, [X, Y]), gathering(1, [X, Y]))) == {}
    results = judge(gathering(0, [X, Y]), gathering(1, [Y, Y]))
    assert results["0:all_gather.0"].extras["communication"]["ranks"] == [1]
    assert failing(results)["0:all_gather.0"].startswith("output 0 differs: rank 0 gave max 1 ")


def test_what_all_ranks_hold_alike_is_held_next_to_what_was_given(judge: Judge) -> None:
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
    assert failing(results)["0:all_to_all.0"].startswith("data from rank 0 to rank 1 differs")


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
