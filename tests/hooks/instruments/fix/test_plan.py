"""What the processes of a run are told, and how they are called."""

from __future__ import annotations

import multiprocessing

import pytest

from msprobe_hooks.decoding import JsonError
from msprobe_hooks.instruments.fix.plan import Plan, Told, claim, lines_of, read_plan


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = Plan(to="cpu", raised={"rank1": ["Torch.mm.0"]}, tells_stacks=True)
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
    assert lines_of(tmp_path) == {"rank3": [Told("Torch.mm.0")]}


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
