"""Calls that compute and communicate among the other communication of a rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.communication.collectives import FUSED, group_of, is_fused, named_arguments, size_of
from msprobe_hooks.dump.communication.jsonl import FILE, find_partners, read_calls
from msprobe_hooks.dump.reader import read_dump
from tests.support.dumps.dump_files import forward, tensor, value, write_dump
from tests.support.dumps.ranks import dump, step

Json = dict[str, Any]
X = tensor(2, 2)
GATHERED = "NPU.npu_all_gather_base_mm.0.forward"
SUMMED = "NPU.npu_mm_all_reduce_base.0.forward"
REDUCED = "Distributed.all_reduce.0.forward"


def test_an_operator_of_npus_is_fused_by_its_name_in_its_forward_direction() -> None:
    assert is_fused(GATHERED)
    assert not is_fused("NPU.npu_all_gather_base_mm.0.backward")
    assert not is_fused("NPU.npu_swiglu.0.forward")
    assert not is_fused("Torch.npu_all_gather_base_mm.0.forward")


def test_a_group_and_its_size_are_found_by_place_and_by_name() -> None:
    records = {
        GATHERED: forward(X, X, value("tp"), value(4)),
        SUMMED: forward(x1=X, x2=X, hcom=value("ep"), output=[X]),
    }
    read = dump(records)
    first = named_arguments("npu_all_gather_base_mm", read.forward(GATHERED))
    second = named_arguments("npu_mm_all_reduce_base", read.forward(SUMMED))
    assert (group_of(first), size_of(first)) == ("tp", 4)
    assert (group_of(second), size_of(second)) == ("ep", 0)
    assert all(len({"hcom", "group_ep", "group"} & set(names)) == 1 for names in FUSED.values())


def test_ranks_of_one_group_are_partners_and_those_of_another_are_not() -> None:
    def calls(group: str) -> Json:
        return {SUMMED: forward(X, X, value(group))}

    partners = find_partners(step(calls("a"), calls("a"), calls("b")))
    assert {key: set(own[0].records) for key, own in partners.items()} == {(0, SUMMED): {1}, (1, SUMMED): {0}}


def test_a_call_without_lines_goes_behind_the_one_whose_record_is_before_its_own(tmp_path: Path) -> None:
    other = "Distributed.all_reduce.1.forward"
    body = forward(X)
    path = write_dump(tmp_path / "rank0", {REDUCED: body, SUMMED: forward(X, X, value("a")), other: body})
    lines = [
        {"event": event, "record": name, "time": 1.0 + i, "input_args": [X], "input_kwargs": {}}
        for i, name in enumerate([REDUCED, other])
        for event in ("began", "ended")
    ]
    (tmp_path / "rank0" / FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = read_calls(read_dump(path), 0, frozenset({0}))
    assert [call.name for call in found.calls] == [REDUCED, SUMMED, other]
