"""Files of transformations, ours and msprobe's: what they mean, and the one line that a wrong one ends in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from msprobe_hooks.dump.values import Value
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.transformations.transformations import STEPS, Transformations, read_transformations

ENTRY = "- match: Module.*.output.0\n  side: golden\n  steps:\n"


def read(folder: Path, text: str) -> Transformations:
    path = folder / "t.yaml"
    path.write_text(text)
    return read_transformations(path)


def value(name: str, **fields: str) -> Value:
    return Value(name=name, type="torch.Tensor", dtype="torch.float32", shape=(2, 2), **fields)


@pytest.fixture
def matrices(tmp_path: Path) -> Path:
    """Write two rotations and one matrix that is none."""
    turn = np.float32([[0, 1], [-1, 0]])
    np.save(tmp_path / "Q.npy", turn)
    np.save(tmp_path / "wide.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "row.npy", np.ones(3, np.float32))
    torch.save({"r": torch.from_numpy(turn), "s": torch.ones(2)}, tmp_path / "Q.pt")
    save_file({"r": torch.from_numpy(turn)}, tmp_path / "Q.safetensors")
    return tmp_path


def test_a_file_names_values_of_a_side_and_their_steps_in_order(matrices: Path) -> None:
    steps = "    - rotate: {by: {file: Q.pt, key: r}, on: left, transposed: true}\n    - transpose: [0, 1]\n"
    found = read(matrices, ENTRY + steps + "  precision: float16\n")
    turned = found.of("golden", value("Module.a.b.Linear.forward.0.output.0"))
    assert turned is not None
    assert turned.words == "golden rotated by Q.pt[r] transposed on the left, then transposed in axes 0 and 1, " + (
        "judged as float16"
    )
    assert found.of("target", value("Module.a.b.Linear.forward.0.output.0")) is None
    assert found.of("golden", value("Module.a.b.Linear.forward.0.output.01")) is None
    assert found.files == [matrices / "Q.pt"]


def test_entries_that_name_one_value_follow_each_other(tmp_path: Path) -> None:
    found = read(tmp_path, f"{ENTRY}    - transpose: [0, 1]\n{ENTRY}    - reshape: [4]\n")
    turned = found.of("golden", value("Module.x.output.0"))
    assert turned is not None
    assert turned.words == "golden transposed in axes 0 and 1, then reshaped to [4]"


def test_an_entry_is_repeated_for_each_number(matrices: Path) -> None:
    np.save(matrices / "scale3.npy", np.ones(2))
    np.save(matrices / "scale4.npy", np.ones(2))
    text = "- match: layers.<n>.*\n  each: {n: 3-4}\n  side: golden\n  steps: [{scale: {divide_by: scale<n>.npy}}]\n"
    found = read(matrices, text)
    assert [entry.names.text for entry in found.entries] == ["layers.3.*", "layers.4.*"]
    turned = found.of("golden", value("layers.4.output.0"))
    assert turned is not None
    assert turned.words == "golden divided by scale4.npy"
    assert read(matrices, text.replace("3-4", "[4]")).entries == (found.entries[1],)


def test_msprobes_configuration_multiplies_listed_tensors_in_its_order(matrices: Path) -> None:
    text = """
left_right_matmul:
  left_golden_tensor_map: {Q.npy: [Module.a.forward.0.output.0.pt]}
  right_golden_tensor_map: {Q.npy: [Module.a.forward.0.output.0.pt]}
right_matmul:
  target_tensor_map:
  golden_tensor_map:
    Q.npy: [Module.a.forward.0.output.0.pt, Module.b.forward.0.output.0.pt]
"""
    found = read(matrices, text)
    turned = found.of("golden", value("Module.a.forward.0.output.0", data_name="Module.a.forward.0.output.0.pt"))
    assert turned is not None
    assert turned.words == (
        "golden multiplied by Q.npy, then multiplied by Q.npy on the left, then multiplied by Q.npy"
    )
    # Of a dump without files, values have the names of the files.
    assert found.of("golden", value("Module.b.forward.0.output.0")) is not None
    assert found.may_concern("golden", "Module.b.forward.0")
    assert not found.may_concern("golden", "Module.c.forward.0")


@pytest.mark.parametrize("by", ["Q.npy", "{file: Q.pt, key: r}", "Q.safetensors", "{file: Q.safetensors, key: r}"])
def test_a_matrix_is_read_from_each_kind_of_file(matrices: Path, by: str) -> None:
    step = read(matrices, f"{ENTRY}    - rotate: {{by: {by}}}\n").entries[0].steps[0]
    assert step.shape((5, 2)) == (5, 2)


@pytest.mark.parametrize(
    ("steps", "line", "problem"),
    [
        ("    - rotat: {by: Q.npy}", 4, "unknown step 'rotat'; did you mean 'rotate'"),
        ("    - rotate: {of: Q.npy}", 4, "unknown key 'of'"),
        ("    - rotate: {}", 4, "by is missing"),
        ("    - rotate: {by: none.npy}", 4, "none.npy: cannot be read: No such file"),
        ("    - rotate: {by: Q.txt}", 4, ".txt is not one of .npy"),
        ("    - rotate: {by: wide.npy}", 4, "wide.npy: not orthogonal"),
        ("    - multiply: {by: row.npy}", 4, "has shape .3., and a matrix has two axes"),
        ("    - rotate: {by: Q.pt}", 4, "holds 2 tensors; say which by its key"),
        ("    - rotate: {by: {file: Q.pt, key: q}}", 4, "its key 'q' is not one of r, s"),
        ("    - rotate: {by: Q.npy, on: top}", 4, "'top' is not one of left, right"),
        ("    - transpose: [0]", 4, "takes the two axes"),
        ("    - permute: [0, 2]", 4, "each axis once"),
        ("    - reshape: [-1, -1]", 4, "of which one may be -1"),
        ("    - slice: {axis: 0, step: 0}", 4, "0 in place of an integer of at least 1"),
        ("    - slice: {axis: x}", 4, "'x' in place of an integer"),
        ("    - reorder: {order: [1, 1]}", 4, "each block once"),
        ("    - rotary: {to: half, head_dim: 3}", 4, "an even number"),
        ("    - qkv: {to: blocks, heads: 3, groups: 2}", 4, "3 heads are not a multiple of 2"),
        ("    - dequantise: {scale: inf}", 4, "'inf' in place of a number"),
        ("    - dequantise: {scale: {value: input.1, file: x}}", 4, "unknown key 'file'"),
        ("    - {transpose: [0, 1], reshape: [1]}", 4, "a list item of its own"),
        ("    []", 4, "not a list of steps"),
    ],
)
def test_a_wrong_step_is_one_line_with_its_place(matrices: Path, steps: str, line: int, problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as caught:
        read(matrices, ENTRY + steps + "\n")
    assert f"t.yaml, line {line}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        ("word", "not a list of entries"),
        ("- {match: a, side: both, steps: [{transpose: [0, 1]}]}", "'both' is not one of target, golden"),
        ("- {side: golden, steps: [{transpose: [0, 1]}]}", "match is missing"),
        ("- {match: a, side: golden, steps: [{transpose: [0, 1]}], precision: int8}", "'int8' is not one of float8"),
        ("- {match: a, side: golden, each: {n: 4-3}, steps: [{transpose: [0, 1]}]}", "'4-3' in place of numbers"),
        ("- {match: a, side: golden, each: {}, steps: [{transpose: [0, 1]}]}", "not one word and its numbers"),
        ("- {match: a, side: golden, steps: [{scale: {}}]}", "either by or divide_by"),
        ("middle_matmul: {}", "unknown section 'middle_matmul'"),
        ("right_matmul: {goldn_tensor_map: {}}", "unknown key 'goldn_tensor_map'"),
        ("right_matmul: {golden_tensor_map: {Q.npy: a}}", "not a list of the names"),
        ("right_matmul: {golden_tensor_map: {gone.npy: [a]}}", "gone.npy: cannot be read"),
    ],
)
def test_a_wrong_file_is_one_line(matrices: Path, text: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as caught:
        read(matrices, text)
    assert "\n" not in str(caught.value)


def test_no_pickled_object_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "Q.npy", np.array([{}], dtype=object))
    with pytest.raises(OptionError, match="not a readable array"):
        read(tmp_path, f"{ENTRY}    - rotate: {{by: Q.npy}}\n")


def test_every_step_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "transformations.md").read_text()
    assert [name for name in STEPS if f"`{name}`" not in page] == []
