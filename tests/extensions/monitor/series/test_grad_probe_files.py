"""What a gradient probe wrote, as series."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import Series, open_run, rank_folders
from tests.support.dumps.probed import write_probe


def test_a_probe_has_three_numbers_of_each_gradient_in_the_order_of_a_backward_pass(tmp_path: Path) -> None:
    write_probe(tmp_path / "rank1", [{"a.weight": [[3.0, -4.0]], "b.weight": [1.0]}] * 3, first=5)
    (folder,) = rank_folders(tmp_path)
    run = open_run(folder)
    assert run.rank == 1
    assert [(key.task, key.name, key.statistic) for key in run.keys] == [
        ("grad_reduced", name, statistic) for name in ("b.weight", "a.weight") for statistic in ("norm", "min", "max")
    ]
    series = [run.read(key) for key in run.keys[3:]]
    assert [each.values.tolist() for each in series] == [[5.0] * 3, [-4.0] * 3, [3.0] * 3]
    assert series[0].steps.tolist() == [5, 6, 7]


def test_a_parameter_whose_gradient_comes_later_has_fewer_steps(tmp_path: Path) -> None:
    write_probe(tmp_path / "rank0", [{"a": [1.0]}, {"a": [1.0], "b": [2.0]}])
    run = open_run(tmp_path / "rank0")
    assert {key.name: run.read(key).steps.tolist() for key in run.keys} == {"a": [0, 1], "b": [1]}


def test_the_probe_next_to_a_watched_run_belongs_to_it(tmp_path: Path) -> None:
    write_probe(tmp_path / "rank0", [{"a": [1.0]}])
    watched = tmp_path / "Dec03_21-34-40-rank0-1d6d9d83"
    watched.mkdir()
    (watched / "actv_0-0.csv").write_text("vpp_stage,name,step,norm\n0,a.output,0,1\n")
    assert rank_folders(tmp_path) == [watched]
    assert open_run(watched).notes == []


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("param_name,max,min\na,1,1\n", r"grad_summary_0\.csv: has no column norm"),
        ("param_name,max,min,norm\na,1,1,x\n", r"the row of 'a' lacks a number in norm, min, max"),
        ("param_name,max,min,norm\na,1\n", r"the row of 'a' lacks a number in norm, min, max"),
        ("name,norm\n", r"begins with 'name', not with the column param_name"),
    ],
)
def test_a_file_that_is_no_summary_is_named(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "grad_summary_0.csv").write_text(text)
    with pytest.raises(MonitorError, match=reported):
        _read(tmp_path)


def _read(folder: Path) -> list[Series]:
    run = open_run(folder)
    return [run.read(key) for key in run.keys]
