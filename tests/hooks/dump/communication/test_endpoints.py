"""What a record of communication says: who gives, who takes, which ranks take part."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe_hooks.dump.communication.endpoints import ends_of
from msprobe_hooks.dump.effects import effects_of_record
from msprobe_hooks.dump.schema import ForwardRecord, forward_record
from tests.support.dumps.dump_files import forward, tensor, value
from tests.support.dumps.ranks import group

WORLD = frozenset({0, 1, 2, 3})
TENSOR = tensor(2)


def record(api: str, *args: Any, **kwargs: Any) -> ForwardRecord:
    return forward_record(f"Distributed.{api}.0.forward", forward(*args, output=[], **kwargs))


def test_a_receive_buffer_is_only_written_to() -> None:
    assert effects_of_record("Distributed.recv.0.forward").is_unread("0")
    assert not effects_of_record("Distributed.send.0.forward").is_unread("0")


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
