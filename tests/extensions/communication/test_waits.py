"""Who waited longest for whom, and what the order of calls alone distinguishes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Event, Line, find_steps
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.communication.messages import StepCommunication, alike_in_order, longest_wait, read_step
from tests.support.dumps.communications import X, all_reduce, broadcast, call
from tests.support.dumps.dump_files import Json, tensor_around, value, write_dump
from tests.support.dumps.ranks import step

# When a call of a rank began, and when it ended or returned a handle.
Times = Mapping[str, tuple[float, float]]


def timed(folder: Path, records: Json, *ranks: Times, event: Event = "ended") -> StepCommunication:
    """Write a step whose ranks made the same calls, each at its own times."""
    dumps = []
    for rank, times in enumerate(ranks):
        path = write_dump(folder / f"step0/rank{rank}", records)
        lines = CommunicationLines(path.parent)
        for name, (began, ended) in times.items():
            lines.write(Line("began", f"Distributed.{name}.forward", began, [tensor_around(4)]))
            lines.write(Line(event, f"Distributed.{name}.forward", ended))
        lines.close()
        dumps.append(read_dump(path))
    (found,) = find_steps(dumps)
    return read_step(found)


def test_the_rank_that_comes_last_is_named_with_who_waited_longest(tmp_path: Path) -> None:
    records = all_reduce() | all_reduce(number=1)
    early = {"all_reduce.0": (10.0, 12.5), "all_reduce.1": (13.0, 19.0)}
    middle = {"all_reduce.0": (11.0, 12.5), "all_reduce.1": (14.0, 19.0)}
    late = {"all_reduce.0": (12.5, 12.5), "all_reduce.1": (19.0, 19.0)}
    assert [*longest_wait([timed(tmp_path, records, middle, late, early)])] == [
        "longest wait: rank 2 for rank 1, which began all_reduce.1 among ranks 0-2 6 s later, 8.5 s in all "
        "communications"
    ]


def test_a_call_that_returned_long_before_is_said_to_have(tmp_path: Path) -> None:
    ahead, late = {"all_reduce.0": (10.0, 10.25)}, {"all_reduce.0": (16.0, 16.25)}
    (line,) = longest_wait([timed(tmp_path, all_reduce(), ahead, late)])
    assert line.endswith("all_reduce.0 among ranks 0, 1 6 s later; its own call returned after 0.25 s")


def test_a_root_waits_for_no_rank_that_it_gives_to(tmp_path: Path) -> None:
    ahead, late = {"broadcast.0": (10.0, 15.0)}, {"broadcast.0": (15.0, 15.0)}
    assert [*longest_wait([timed(tmp_path / "a", broadcast(src=0), ahead, late)])] == []
    (line,) = longest_wait([timed(tmp_path / "b", broadcast(src=1), ahead, late)])
    assert line.startswith("longest wait: rank 0 for rank 1, which began broadcast.0 ")


def test_a_receiver_waits_for_the_sender_alone(tmp_path: Path) -> None:
    ahead, late = {"send.0": (10.0, 15.0)}, {"recv.0": (15.0, 15.0)}
    for receiver_is_late in (True, False):
        folder = tmp_path / str(receiver_is_late)
        times = (ahead, late) if receiver_is_late else ({"send.0": (15.0, 15.0)}, {"recv.0": (10.0, 15.0)})
        paths = [
            write_dump(folder / "step0/rank0", call("send", [X], [X], dst=value(1))),
            write_dump(folder / "step0/rank1", call("recv", [X], [X], src=value(0))),
        ]
        for path, own in zip(paths, times, strict=True):
            lines = CommunicationLines(path.parent)
            for name, (began, ended) in own.items():
                given = {"dst": value(1)} if name == "send.0" else {"src": value(0)}
                lines.write(Line("began", f"Distributed.{name}.forward", began, [tensor_around(4)], given))
                lines.write(Line("ended", f"Distributed.{name}.forward", ended))
            lines.close()
        (found,) = find_steps(map(read_dump, paths))
        said = [*longest_wait([read_step(found)])]
        assert len(said) == (0 if receiver_is_late else 1)
    assert said[0].startswith("longest wait: rank 1 for rank 0, which began ")


def test_a_call_that_returns_a_handle_waits_for_no_rank(tmp_path: Path) -> None:
    ahead, late = {"all_reduce.0": (10.0, 10.0)}, {"all_reduce.0": (16.0, 16.0)}
    assert [*longest_wait([timed(tmp_path, all_reduce(), ahead, late, event="launched")])] == []


def test_less_than_a_second_is_no_wait(tmp_path: Path) -> None:
    ahead, late = {"all_reduce.0": (10.0, 10.9)}, {"all_reduce.0": (10.9, 10.9)}
    assert [*longest_wait([timed(tmp_path, all_reduce(), ahead, late)])] == []


def test_the_summary_has_both_lines(pytester: pytest.Pytester) -> None:
    records = all_reduce() | all_reduce(number=1) | broadcast()
    ahead, late = {"all_reduce.0": (10.0, 16.0)}, {"all_reduce.0": (16.0, 16.0)}
    timed(pytester.path, records, ahead, late)
    result = pytester.runpytest_inprocess("--msprobe-communication=step0")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "no communication differs between ranks",
            "longest wait: rank 0 for rank 1, which began all_reduce.0 among ranks 0, 1 6 s later",
            "2 of 3 communications have others of the same operation, dtype and shape: if a rank swaps two of these, "
            "no difference is seen",
        ]
    )


def test_calls_are_known_by_more_than_their_order_where_anything_else_differs() -> None:
    alone = all_reduce() | all_reduce(tensor_around(4), 1, op=value("MAX")) | broadcast()
    barriers = {f"Distributed.barrier.{number}.forward": {"input_args": [], "output": []} for number in range(2)}
    assert alike_in_order(read_step(step(alone | barriers, alone | barriers))) == 0
    assert alike_in_order(read_step(step(alone | all_reduce(number=2), alone | all_reduce(number=2)))) == 2
