"""Communication records of several ranks lead from one to the next."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.extensions.graphs.graph_page import communication_links
from tests.support.dumps.dump_files import Json, forward, tensor_around, value, write_dump

REDUCE, SEND, RECEIVE = (f"Distributed.{name}.0.forward" for name in ("all_reduce", "send", "recv"))


def dumps(folder: Path, *ranks: Json) -> list[Dump]:
    return [read_dump(write_dump(folder / f"rank{rank}", records)) for rank, records in enumerate(ranks)]


def call(**kwargs: Json) -> Json:
    return forward(tensor_around(2), **kwargs)


def test_a_collective_leads_once_around_all_ranks(tmp_path: Path) -> None:
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2], "group_id": "a"}
    records = {REDUCE: call(group=group)}
    assert communication_links(dumps(tmp_path, records, records, records)) == [
        [(REDUCE, 1, REDUCE)],
        [(REDUCE, 2, REDUCE)],
        [(REDUCE, 0, REDUCE)],
    ]


def test_a_send_and_its_receive_lead_to_each_other(tmp_path: Path) -> None:
    found = communication_links(dumps(tmp_path, {SEND: call(dst=value(1))}, {RECEIVE: call(src=value(0))}))
    assert found == [[(SEND, 1, RECEIVE)], [(RECEIVE, 0, SEND)]]


def test_what_no_other_rank_took_part_in_leads_nowhere(tmp_path: Path) -> None:
    assert communication_links(dumps(tmp_path, {SEND: call(dst=value(1))}, {})) == [[], []]
