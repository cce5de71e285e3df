from __future__ import annotations

import json
from pathlib import Path

import pytest

from msprobe_hooks.dump.call_context import Surroundings
from pytest_msprobe.extensions.overflow.nonfinite_origins import origin_lines, origin_of

FRAMES = ["File a.py, line 1, in f, \n torch.exp(x)", "File a.py, line 9, in <module>, \n f(x)"]


@pytest.mark.parametrize(
    "stacks",
    [{"0": [["Torch.exp.0.forward"], FRAMES]}, {"Torch.exp.0.forward": FRAMES}],
    ids=["grouped", "by name"],
)
def test_both_forms_of_stacks_are_read(tmp_path: Path, stacks: object) -> None:
    (tmp_path / "stack.json").write_text(json.dumps(stacks))
    assert origin_of(Surroundings(tmp_path), "Torch.exp.0.forward").frames == tuple(FRAMES)


@pytest.mark.parametrize("parent", ["Module.fc.Linear.forward.0", ["Module.fc.Linear.forward.0", 3]])
def test_modules_are_distinguished_from_the_outermost_in(tmp_path: Path, parent: object) -> None:
    parents = {"Torch.exp.0.forward": parent, "Module.fc.Linear.forward.0": "Module.net.Net.forward.0"}
    (tmp_path / "construct.json").write_text(json.dumps({**parents, "Module.net.Net.forward.0": None}))
    modules = origin_of(Surroundings(tmp_path), "Torch.exp.0.forward").modules
    assert modules == ("Module.net.Net.forward.0", "Module.fc.Linear.forward.0")


def test_modules_that_are_their_own_parents_end(tmp_path: Path) -> None:
    (tmp_path / "construct.json").write_text(json.dumps({"a": "b", "b": "a"}))
    assert set(origin_of(Surroundings(tmp_path), "a").modules) == {"a", "b"}


def test_missing_files_are_reported() -> None:
    assert origin_of(Surroundings(Path("nowhere")), "a").problems == (
        "no stack.json next to the dump",
        "no construct.json next to the dump",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "stack.json: the JSON ends too early"),
        (b"[]", "stack.json: not a JSON object"),
        (b'{"0": 3}', "stack.json: its form is not one that msprobe writes"),
        (b'{"0": [3, 4, 5]}', "stack.json: its form is not one that msprobe writes"),
        (b"\xff\xfe", "stack.json: not valid JSON"),
        (b" ", "stack.json: the file is empty"),
        (b"{}", "stack.json does not hold a"),
    ],
)
def test_a_damaged_file_is_reported_and_is_no_error(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "stack.json").write_bytes(content)
    assert any(problem.startswith(said) for problem in origin_of(Surroundings(tmp_path), "a").problems)


def test_a_backward_record_is_placed_by_its_forward_call(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"0": [["Torch.exp.0.forward"], FRAMES]}))
    origin = origin_of(Surroundings(tmp_path), "Torch.exp.0.backward")
    assert not any("stack.json" in problem for problem in origin.problems)
    assert next(origin_lines(origin)) == "forward called at a.py, line 1, in f, torch.exp(x)"
