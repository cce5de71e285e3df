"""What a rank said to others, in which order, and who its partners are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.communication.jsonl import (
    FILE,
    CommunicationLines,
    Line,
    Partners,
    find_partners,
    find_steps,
    read_calls,
    read_lines,
)
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.errors import DumpError
from tests.support.dumps.dump_files import forward, tensor, value, write_dump
from tests.support.dumps.ranks import group, step

Json = dict[str, Any]
X = tensor(2)
NO_BUFFER = {"input_args": [None, value(0)], "input_kwargs": {}, "output": [X, value(0)]}


def named(api: str, body: Json, number: int = 0) -> Json:
    return {f"Distributed.{api}.{number}.forward": body}


def test_a_send_and_its_receive_are_partners() -> None:
    partners = find_partners(step(named("send", forward(X, value(1))), named("recv", NO_BUFFER)))
    assert partners == {
        (0, "Distributed.send.0.forward"): [Partners("send", {1: "Distributed.recv.0.forward"})],
        (1, "Distributed.recv.0.forward"): [Partners("receive", {0: "Distributed.send.0.forward"})],
    }


def test_all_ranks_of_a_group_are_partners_where_no_rank_is_the_root() -> None:
    everywhere = named("all_reduce", forward(X, group=group(0, 1)))
    partners = find_partners(step(everywhere, everywhere))
    assert partners[0, "Distributed.all_reduce.0.forward"] == [
        Partners("send_receive", {1: "Distributed.all_reduce.0.forward"})
    ]


@pytest.mark.parametrize(
    ("api", "role", "of_root", "of_others"),
    [("broadcast", "src", "send", "receive"), ("reduce", "dst", "receive", "send")],
)
def test_a_root_has_all_others_as_partners_and_they_have_the_root(
    api: str, role: str, of_root: str, of_others: str
) -> None:
    name = f"Distributed.{api}.0.forward"
    partners = find_partners(step(*[named(api, forward(X, **{role: value(1)}))] * 3))
    assert partners[1, name] == [Partners(of_root, {0: name, 2: name})]
    assert partners[2, name] == [Partners(of_others, {1: name})]


def test_a_batch_has_partners_for_each_of_its_messages() -> None:
    def message(op: str, peer: int) -> Json:
        return {"class_type": "torch.distributed.P2POp", "tensor": X, "op": op, "peer": peer, "tag": 0}

    batches = [[message("isend", 1 - rank), message("irecv", 1 - rank)] for rank in range(2)]
    partners = find_partners(step(*(named("batch_isend_irecv", forward(batch)) for batch in batches)))
    name = "Distributed.batch_isend_irecv.0.forward"
    assert partners[0, name] == [Partners("send", {1: name}), Partners("receive", {1: name})]


def test_a_call_that_a_rank_left_out_moves_no_partners_of_later_ones() -> None:
    whole = {**named("all_reduce", forward(X)), **named("broadcast", forward(X, src=value(0)))}
    whole |= named("all_reduce", forward(tensor(3)), 1)
    short = {**named("broadcast", forward(X, src=value(0))), **named("all_reduce", forward(tensor(3)))}
    partners = find_partners(step(whole, whole, short))
    assert partners[2, "Distributed.all_reduce.0.forward"][0].records == {
        0: "Distributed.all_reduce.1.forward",
        1: "Distributed.all_reduce.1.forward",
    }


def test_calls_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    first, second = "Distributed.all_reduce.0.forward", "Distributed.broadcast.0.forward"
    write_dump(tmp_path, {second: forward(X, src=value(0)), first: forward(X)})
    lines = CommunicationLines(tmp_path)
    for name in (first, second):
        lines.write(Line("began", name, 1.0, [X], {}))
    lines.write(Line("ended", second, 2.0))
    calls = read_calls(read_dump(tmp_path / "dump.json"), 0, frozenset({0, 1}))
    assert [(call.name, call.progress) for call in calls.calls] == [(first, "began"), (second, "ended")]


def test_a_call_without_a_record_is_known_from_its_line(tmp_path: Path) -> None:
    write_dump(tmp_path, {})
    killed = Line("began", "Distributed.all_reduce.0.forward", 1.0, [X], {"group": group(0, 2)})
    CommunicationLines(tmp_path).write(killed)
    (call,) = read_calls(read_dump(tmp_path / "dump.json"), 0, frozenset({0, 1, 2})).calls
    assert (call.is_recorded, call.progress, call.ends[0].expected) == (False, "began", {0, 2})


GOOD = {"event": "began", "record": "Distributed.barrier.0.forward", "time": 1}


def test_the_last_line_of_a_process_that_was_killed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(GOOD) + '\n{"event": "began", "rec')
    assert [line.record for line in read_lines(tmp_path)] == ["Distributed.barrier.0.forward"]


@pytest.mark.parametrize(
    "bad", ['{"event": "began", "rec', "[]", '{"event": "danced", "record": "x", "time": 1}', "\xff"]
)
def test_any_other_line_that_cannot_be_read_is_an_error(tmp_path: Path, bad: str) -> None:
    (tmp_path / FILE).write_text(f"{json.dumps(GOOD)}\n{bad}\n", encoding="latin-1")
    with pytest.raises(DumpError, match=f"{FILE}:2: .*; copy the file again, or remove it"):
        read_lines(tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_in_place_of_the_lines_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / FILE)
    with pytest.raises(DumpError, match=f"{FILE}: cannot be read"):
        read_lines(tmp_path)


def test_asynchronous_calls_of_one_function_began_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"Distributed.all_reduce.{n}.forward" for n in (1, 0)]
    path = write_dump(tmp_path, {name: forward(X) for name in names})
    (only,) = find_steps([read_dump(path)])
    calls = read_calls(only.ranks[0], 0, frozenset({0})).calls
    assert [call.name for call in calls] == names[::-1]
