"""Which layouts the tensors of a check have, by the option and by what the dump says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS, Layout
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.schema import tensors_of
from msprobe_hooks.record import record
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.journal import read_journal
from pytest_msprobe.modes.check.layout_choice import LayoutChooser

PRODUCT = "Torch.matmul.0.forward"


def program() -> None:
    x = torch.mm(torch.randn(3, 4), torch.randn(4, 5)).requires_grad_()
    torch.matmul(x.t(), torch.randn(3, 2)).t().sum().backward()


def _without_layouts(tree: Any) -> Any:
    if isinstance(tree, dict):
        is_tensor = "shape" in tree
        return {key: _without_layouts(item) for key, item in tree.items() if not (is_tensor and key in LAYOUT_KEYS)}
    return [_without_layouts(item) for item in tree] if isinstance(tree, list) else tree


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> Path:
    with record(pytester.path / "run"):
        program()
    return pytester.path / "run" / "step0" / "rank" / "dump.json"


@pytest.fixture
def as_of_msprobe(pytester: pytest.Pytester, recorded: Path) -> Path:
    body = _without_layouts(json.loads(recorded.read_text()))
    del body["tensor_layouts"]
    path = pytester.path / "dump.json"
    path.write_text(json.dumps(body))
    return path


def layouts_of(dump: Dump, choice: Any, name: str = PRODUCT) -> list[Layout | None]:
    call = LayoutChooser(choice).chosen(dump, read_call(dump, name))
    arriving = [] if call.backward is None else call.backward.grad_outputs
    return [element.layout for element in tensors_of([*call.forward.args, *arriving])]


def test_recorded_layouts_are_kept(recorded: Path) -> None:
    assert layouts_of(read_dump(recorded), "auto") == [Layout((1, 5)), None, Layout((0, 0))]


def test_layouts_that_the_calls_before_show_are_taken(as_of_msprobe: Path) -> None:
    assert layouts_of(read_dump(as_of_msprobe), "auto") == [Layout((1, 5), derived=True), None, None]


@pytest.mark.parametrize("kind", ["recorded", "as_of_msprobe"])
def test_contiguous_takes_all_layouts_away(request: pytest.FixtureRequest, kind: str) -> None:
    assert layouts_of(read_dump(request.getfixturevalue(kind)), "contiguous") == [None, None, None]


def test_an_older_recording_counts_as_one_that_says_layouts(recorded: Path) -> None:
    body = json.loads(recorded.read_text())
    del body["tensor_layouts"]
    recorded.write_text(json.dumps(body))
    assert read_dump(recorded).has_layouts


def test_an_argument_named_stride_is_no_layout(tmp_path: Path) -> None:
    stride = {"stride": [{"type": "int", "value": 2}], "memory_format": {"type": "torch.memory_format", "format": "x"}}
    data = {"Functional.conv2d.0.forward": {"input_args": [], "input_kwargs": stride, "output": []}}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    assert not read_dump(tmp_path / "dump.json").has_layouts


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    def check(dump: Path, *options: str) -> pytest.RunResult:
        return pytester.runpytest(f"--msprobe-dump={dump}", "--msprobe-device=cpu", *options)

    return check


def test_the_summary_counts_where_layouts_are_known_from(run: Run, as_of_msprobe: Path) -> None:
    run(as_of_msprobe, "--msprobe-only=mm,matmul").stdout.fnmatch_lines(
        ["1 dump without memory layouts: 2 records ran on derived ones, the others on contiguous inputs"]
    )


def test_the_summary_says_nothing_where_all_were_recorded(run: Run, recorded: Path) -> None:
    run(recorded).stdout.no_fnmatch_line("*memory layouts*")


def test_the_summary_says_nothing_where_all_are_contiguous(run: Run, as_of_msprobe: Path) -> None:
    run(as_of_msprobe, "--msprobe-layout=contiguous").stdout.no_fnmatch_line("*memory layouts*")


def test_an_unknown_choice_is_refused(run: Run, recorded: Path) -> None:
    run(recorded, "--msprobe-layout=strided").stderr.fnmatch_lines(["*--msprobe-layout*strided*auto*contiguous*"])


def test_the_ini_setting_has_the_same_effect(pytester: pytest.Pytester, run: Run, as_of_msprobe: Path) -> None:
    pytester.makeini("[pytest]\naddopts = --msprobe-layout=contiguous")
    run(as_of_msprobe).stdout.no_fnmatch_line("*memory layouts*")


def test_a_journal_of_other_layouts_is_not_continued(pytester: pytest.Pytester, run: Run, recorded: Path) -> None:
    run(recorded, "--msprobe-journal=run.jsonl", "--msprobe-layout=contiguous")
    assert read_journal(pytester.path / "run.jsonl").header.settings["layout"] == "contiguous"
    again = run(recorded, "--msprobe-resume=run.jsonl")
    assert again.ret != 0
    again.stderr.fnmatch_lines(["*made with layout contiguous, this run has (default)*"])
