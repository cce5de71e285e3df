"""What the processes of a run are given, and how they are called."""

from __future__ import annotations

import multiprocessing

import pytest

from msprobe_hooks.extensions.fix.run_plan import Left, Plan, RunReport, claim, leave, left_in, lines_of, read_plan
from msprobe_hooks.json_decoding import JsonError


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = Plan(to="cpu", raised={"rank1": ["Torch.mm.0"]}, reports_stacks=True)
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan


def test_a_plan_for_another_precision_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text('{"to": "float8"}')
    with pytest.raises(JsonError):
        read_plan(tmp_path)


def test_a_process_is_called_by_its_rank(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    process, file = claim(tmp_path)
    file.write(b'{"call":"Torch.mm.0"}\n')
    file.close()
    assert process == "rank3"
    assert lines_of(tmp_path) == {"rank3": [RunReport("Torch.mm.0")]}


def test_no_two_processes_have_one_name_and_none_leaves_the_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(multiprocessing.current_process(), "_name", "../worker")
    names = []
    for _ in range(2):
        process, file = claim(tmp_path)
        file.close()
        names.append(process)
    assert names == [".._worker", ".._worker-2"]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_processes_leave_as_it_is_is_read_once_and_in_order(tmp_path):
    assert left_in(tmp_path) == []
    for process, api in [("rank0", "Torch.mm"), ("rank1", "Torch.mm"), ("rank0", "Functional.dropout")]:
        leave(tmp_path, process, Left(api, "it draws random numbers"))
    assert [left.api for left in left_in(tmp_path)] == ["Functional.dropout", "Torch.mm"]
