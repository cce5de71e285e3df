"""Operators that a YAML file or a library adds, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.operators import database
from pytest_msprobe.extensions.operators.database import Operator, Sample, find_operators

OWN = """
operators:
  torch.clamp:
    dtypes: [int64, float32]
    samples:
      - args: [{shape: [3, 4], low: 2, high: 5}]
        kwargs: {max: 4}
      - args: [{shape: [2]}, 0, 1]
"""
FAMILY = """
families:
  - names: torch.{add,mul} torch.special.xlog1py
    samples:
      - args: [{values: [1, 2, 3]}, {shape: [3], dtype: int32}]
left_out:
  it draws random numbers: torch.{rand,randn}
"""


def clamped() -> list[Operator]:
    """Return what an entry point gives."""
    return [Operator("mine.clamp", torch.clamp, lambda dtype: [Sample((torch.ones(2, dtype=dtype), 0))], ["float32"])]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "own.yaml"
        path.write_text(text)
        return path

    return write


def test_a_file_has_functions_and_samples_in_its_dtypes(written: Callable[[str], Path]) -> None:
    (operator,) = find_operators([], [written(OWN)])
    assert operator.function is torch.clamp
    assert set(operator.dtypes) == {"int64", "float32"}
    samples = sorted(operator.draw(torch.int64, 9), key=lambda sample: len(sample.args))
    assert [sample.kwargs for sample in samples] == [{"max": 4}, {}]
    (drawn,) = samples[0].args
    assert drawn.dtype == torch.int64
    assert drawn.shape == (3, 4)
    assert 2 <= drawn.min() <= drawn.max() < 5
    assert list(samples[1].args[1:]) == [0, 1]


def test_samples_of_floats_have_gradients_and_those_of_integers_none(written: Callable[[str], Path]) -> None:
    (operator,) = find_operators([], [written(OWN)])
    requires = {
        dtype: [sample.args[0].requires_grad for sample in operator.draw(dtype, 9)]
        for dtype in (torch.float32, torch.int64)
    }
    assert requires == {torch.float32: [True, True], torch.int64: [False, False]}


def test_samples_are_the_same_each_time(written: Callable[[str], Path]) -> None:
    (operator,) = find_operators([], [written(OWN)])
    first, second = (operator.draw(torch.float32, 1)[0].args[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_tensor_with_a_dtype_of_its_own_keeps_it(written: Callable[[str], Path]) -> None:
    text = "operators: {torch.take: {samples: [{args: [{shape: [5]}, {shape: [2], dtype: int64, low: 0, high: 5}]}]}}"
    (operator,) = find_operators([], [written(text)])
    values, places = operator.draw(torch.float16, 1)[0].args
    assert (values.dtype, places.dtype) == (torch.float16, torch.int64)
    assert operator.function(values, places).shape == (2,)


def test_an_operator_of_a_library_is_named_as_torch_names_it(written: Callable[[str], Path]) -> None:
    text = "operators: {'aten::relu': {samples: [{args: [{shape: [2]}]}]}}"
    (operator,) = find_operators([], [written(text)])
    assert operator.function is torch.ops.aten.relu


def test_a_library_adds_operators_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:clamped", database.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: clamped)
    monkeypatch.setattr(database, "entry_points", lambda group: [entry] if group == database.ENTRY_POINTS else [])
    monkeypatch.setattr(database, "_of_torch", lambda: iter(()))
    assert [operator.label for operator in find_operators(["clamp"], [])] == ["mine.clamp"]


def test_what_a_library_adds_to_torch_is_no_operator_of_mindspore(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Operator("mindspore.mint.abs", torch.abs, lambda dtype: [], ["float32"])
    monkeypatch.setattr(database, "_of_mindspore", lambda: iter([own]))
    monkeypatch.setattr(database, "_of_libraries", lambda: iter(clamped()))
    assert find_operators([], [], "mindspore") == [own]


def test_an_unknown_operator_has_the_name_that_was_probably_meant(
    monkeypatch: pytest.MonkeyPatch, written: Callable[[str], Path]
) -> None:
    monkeypatch.setattr(database, "_of_torch", lambda: iter(()))
    with pytest.raises(CommandError, match=r"^no operator 'torch.clmap'; did you mean 'torch.clamp'\?$"):
        find_operators(["torch.clmap"], [written(OWN)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("operators: [", "is no YAML"),
        ("operator: {}", "the file: unknown key 'operator'; did you mean 'operators'?"),
        ("operators: [torch.abs]", r"operators is ['torch.abs'], expected a mapping"),
        ("operators: {torch.abs: {}}", "torch.abs has no samples; add a list samples, each with args"),
        ("operators: {torch.abs: {samples: [3]}}", "a sample of torch.abs: expected a mapping with args, kwargs"),
        ("operators: {torch.abs: {samples: [{arg: []}]}}", "a sample of torch.abs: unknown key 'arg'"),
        ("import: [no_such_library]", "import no_such_library: No module named 'no_such_library'"),
        ("operators: {'no::such': {samples: [{args: []}]}}", "list the module that defines it under import"),
        ("operators: {torch.nn: {samples: [{args: []}]}}", "torch.nn is no function"),
        ("families: [{samples: [{args: []}]}]", "a family has no names; add names, such as torch.{add,mul}"),
        ("families: [{name: torch.add}]", "a family: unknown key 'name'; did you mean 'names'?"),
        ("families: [{names: [torch.add]}]", "a family: names is ['torch.add'], expected a text"),
        ("families: [{names: 'torch.{add,no_such}', samples: [{args: []}]}]", "no operator torch.no_such"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(written: Callable[[str], Path], text: str, problem: str) -> None:
    path = written(text)
    with pytest.raises(CommandError) as caught:
        find_operators([], [path])
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"own.yaml: cannot be read: No such file"):
        find_operators([], [tmp_path / "own.yaml"])


def test_a_family_is_each_name_that_braces_stand_for(written: Callable[[str], Path]) -> None:
    operators = find_operators([], [written(FAMILY)])
    assert [one.function for one in operators if not one.why_not] == [torch.add, torch.mul, torch.special.xlog1py]


def test_what_is_left_out_has_its_reason_and_no_samples(written: Callable[[str], Path]) -> None:
    listed = [one for one in find_operators([], [written(FAMILY)]) if one.why_not]
    assert {one.name: one.why_not for one in listed} == dict.fromkeys(
        ["torch.rand", "torch.randn"], "it draws random numbers"
    )
    assert [one.draw(torch.float32, 4) for one in listed] == [[], []]


def test_values_are_taken_as_they_are_in_the_dtype_of_the_sweep(written: Callable[[str], Path]) -> None:
    values, others = find_operators([], [written(FAMILY)])[0].draw(torch.float16, 1)[0].args
    assert values.dtype == torch.float16
    assert values.tolist() == [1, 2, 3]
    assert values.requires_grad
    assert others.dtype == torch.int32


def test_a_dtype_alone_is_an_argument(written: Callable[[str], Path]) -> None:
    text = "operators: {torch.Tensor.to: {samples: [{args: [{shape: [2]}, {dtype: float16}]}]}}"
    assert find_operators([], [written(text)])[0].draw(torch.float32, 1)[0].args[1] is torch.float16


def test_a_framework_that_is_not_installed_is_named_with_its_extra() -> None:
    if find_spec("mindspore") is not None:
        pytest.skip("MindSpore is installed")
    with pytest.raises(CommandError, match=r"MindSpore is not installed; pip install 'pytest-msprobe\[mindspore\]'"):
        find_operators([], [], "mindspore")
