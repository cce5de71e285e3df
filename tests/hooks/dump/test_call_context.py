from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.call_context import Surroundings, modules_around, outside_frameworks, relevant_frames

FRAMES = ["File a.py, line 1, in f, \n torch.exp(x)", "File a.py, line 9, in <module>, \n f(x)"]
TANH = "Torch.tanh.0.forward"
INNER, OUTER = "Module.net.fc.Linear.forward.0", "Module.net.Net.forward.0"


def surroundings(folder: Path, *, stack: Any = None, construct: Any = None) -> Surroundings:
    for name, content in (("stack.json", stack), ("construct.json", construct)):
        if content is not None:
            (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return Surroundings(folder)


@pytest.mark.parametrize("stacks", [{"0": [[TANH, "Torch.exp.0.forward"], FRAMES]}, {TANH: FRAMES}])
def test_stacks_are_read_whether_records_share_them_or_not(tmp_path: Path, stacks: Any) -> None:
    read = surroundings(tmp_path, stack=stacks).stacks
    assert (read.entries[TANH], read.problem) == (tuple(FRAMES), None)


def test_two_records_of_two_frames_each_are_no_group(tmp_path: Path) -> None:
    assert surroundings(tmp_path, stack={TANH: FRAMES[:2]}).stacks.entries == {TANH: tuple(FRAMES)}


def test_a_record_without_a_stack_of_its_own_has_that_of_its_forward_record(tmp_path: Path) -> None:
    stacks = surroundings(tmp_path, stack={"0": [[TANH], FRAMES]}).stacks
    assert stacks.of_call("Torch.tanh.0.backward") == tuple(FRAMES)
    assert stacks.of_call("Torch.tanh.1.backward") is None


@pytest.mark.parametrize("parent", [INNER, [INNER], [INNER, 3]], ids=["alone", "in a list", "next to a micro step"])
def test_the_parent_of_a_record_is_read_in_every_form(tmp_path: Path, parent: Any) -> None:
    assert surroundings(tmp_path, construct={TANH: parent}).parents.entries == {TANH: INNER}


@pytest.mark.parametrize("parent", [None, [None], [None, 3], []])
def test_a_record_outside_of_modules_has_no_parent(tmp_path: Path, parent: Any) -> None:
    parents = surroundings(tmp_path, construct={TANH: parent}).parents
    assert (parents.entries, parents.problem) == ({TANH: None}, None)


def test_modules_are_distinguished_from_the_innermost_out(tmp_path: Path) -> None:
    parents = surroundings(tmp_path, construct={TANH: INNER, INNER: OUTER, OUTER: None}).parents
    assert modules_around(TANH, parents.entries.get) == [INNER, OUTER]


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdef")))
def test_modules_that_are_their_own_parents_end(parents: dict[str, str]) -> None:
    for name in "abcdef":
        around = modules_around(name, parents.get)
        assert len(set(around)) == len(around)
        assert all(parents[child] == parent for child, parent in zip([name, *around], around, strict=False))


def test_a_missing_file_is_a_value_that_names_it(tmp_path: Path) -> None:
    found = surroundings(tmp_path)
    assert not found.has_stacks
    for table, name in ((found.stacks, "stack.json"), (found.parents, "construct.json")):
        assert table.problem is not None
        assert (table.problem.file, table.problem.kind) == (tmp_path / name, "missing")
        assert str(table.problem) == f"no {name} next to the dump"
        assert table.entries == {}


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", "empty", "the file is empty"),
        (b" \n", "empty", "the file is empty"),
        (b"{", "damaged", "the JSON ends too early"),
        (b"\xff\xfe", "damaged", "not valid JSON"),
        (b'{"a": ' + b"[" * 100_000, "damaged", "nested too deeply"),
        (b"[]", "damaged", "not a JSON object"),
        (b"3", "damaged", "not a JSON object"),
        (b'{"a": 3}', "damaged", "its form is not one that msprobe writes"),
        (b'{"a": [3, 4, 5]}', "damaged", "its form is not one that msprobe writes"),
        (b'{"a": {}}', "damaged", "its form is not one that msprobe writes"),
    ],
)
@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
def test_a_damaged_file_is_a_value_that_says_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, kind: str, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found = Surroundings(tmp_path)
    problem = (found.stacks if name == "stack.json" else found.parents).problem
    assert problem is not None
    assert problem.kind == kind
    assert str(problem).startswith(f"{name}: {said}")


def test_a_file_that_cannot_be_read_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "stack.json").mkdir()
    problem = Surroundings(tmp_path).stacks.problem
    assert problem is not None
    assert "cannot be read" in str(problem)


def test_what_is_right_in_a_damaged_file_is_used(tmp_path: Path) -> None:
    found = surroundings(tmp_path, stack={"0": 3, TANH: FRAMES}, construct={"a": {}, "b": [[]], TANH: INNER})
    assert found.stacks.entries == {TANH: tuple(FRAMES)}
    assert found.parents.entries == {TANH: INNER}


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_reported_to_be_damaged(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    folder = tmp_path_factory.mktemp("dump")
    found = surroundings(folder, stack=json.dumps(content).encode(), construct=json.dumps(content).encode())
    for table in (found.stacks, found.parents):
        assert table.problem is None or table.problem.kind == "damaged"


def test_frames_of_a_framework_say_nothing_those_of_other_libraries_do() -> None:
    torch, model, mine = (
        f"File {place}, line 9, in forward, f(x)"
        for place in (
            "/v/site-packages/torch/nn/modules/linear.py",
            "/v/site-packages/transformers/llama.py",
            "train.py",
        )
    )
    assert outside_frameworks([torch, model, torch, mine]) == [model, mine]
    assert outside_frameworks([torch]) == [torch]


def test_the_program_that_called_a_library_is_reported_however_far_out_it_is() -> None:
    torch, numbers, model, mine, main = (
        f"File {place}, line 9, in forward, f(x)"
        for place in (
            "/v/site-packages/torch/nn/functional.py",
            "/usr/lib/python3.11/functools.py",
            "/v/site-packages/transformers/llama.py",
            "/home/me/step.py",
            "/home/me/train.py",
        )
    )
    assert relevant_frames([torch, model, numbers, model, torch, mine, main], 2) == [model, mine]
    assert relevant_frames([torch, mine, main], 2) == [mine, main]
    assert relevant_frames([torch, model, numbers], 1) == [model]
    assert relevant_frames([torch, torch], 3) == [torch, torch]
