"""Values that two frameworks record in another dtype, in other places, or one of them not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dumps.across_frameworks import call, pair_of, tensor, torch_tensor
from tests.support.dumps.dump_files import value as number


def test_the_three_floats_stand_for_each_other_and_other_dtypes_do_not(tmp_path: Path) -> None:
    ours = {f"Mint.add.{i}.forward": call(tensor(2, dtype=dtype)) for i, dtype in enumerate(("BFloat16", "Int32"))}
    theirs = {f"Torch.add.{i}.forward": call(torch_tensor(2)) for i in range(2)}
    pair = pair_of(tmp_path, ours, theirs)
    assert [pair.compare(name).outcome for name in ours] == ["pass", "fail"]


@pytest.mark.parametrize("frameworks", ["mindspore pytorch", "pytorch mindspore"])
def test_integers_of_other_widths_are_compared_by_their_values(tmp_path: Path, frameworks: str) -> None:
    apis = {"mindspore": "Mint.add", "pytorch": "Torch.add"}
    narrow, wide = ("Int32", "torch.int64") if frameworks.startswith("mindspore") else ("torch.int64", "Int32")
    names = [apis[framework] for framework in frameworks.split()]
    ours = {f"{names[0]}.{i}.forward": call(tensor(2, dtype=narrow, at=7)) for i in range(2)}
    theirs = {f"{names[1]}.{i}.forward": call(tensor(2, dtype=wide, at=at)) for i, at in enumerate((7, 8))}
    pair = pair_of(tmp_path, ours, theirs, frameworks)
    assert [pair.compare(name).outcome for name in ours] == ["pass", "fail"]
    assert {row.target.dtype for row in pair.compare(next(iter(ours))).rows if row.target} == {narrow}


def test_arguments_that_only_one_framework_takes_are_left_out(tmp_path: Path) -> None:
    ours = {"Mint.add.0.forward": call(tensor(2), number(1), mode={"type": "NoneType", "value": None})}
    theirs = {"Torch.add.0.forward": call(torch_tensor(2), number(1), inplace=number(False))}
    assert pair_of(tmp_path, ours, theirs).compare("Mint.add.0.forward").outcome == "pass"


def test_another_number_is_a_difference(tmp_path: Path) -> None:
    ours = {"Mint.add.0.forward": call(tensor(2), number(1))}
    theirs = {"Torch.add.0.forward": call(torch_tensor(2), number(2))}
    assert pair_of(tmp_path, ours, theirs).compare("Mint.add.0.forward").outcome == "fail"


def test_parameters_of_mindspores_layers_find_those_of_pytorchs(tmp_path: Path) -> None:
    name, other = "Cell.n.LayerNorm.forward.0", "Module.n.LayerNorm.forward.0"
    ours = {name: call(tensor(2)) | {"parameters": {"gamma": tensor(2), "beta": tensor(2, at=3)}}}
    theirs = {other: call(torch_tensor(2)) | {"parameters": {"weight": torch_tensor(2), "bias": torch_tensor(2, at=3)}}}
    found = pair_of(tmp_path, ours, theirs).compare(name)
    assert found.outcome == "pass"
    assert all(row.target and row.golden for row in found.rows)


def test_buffers_that_pytorch_does_not_record_are_left_out_and_a_missing_parameter_is_not(tmp_path: Path) -> None:
    name, other = "Cell.n.BatchNorm2d.forward.0", "Module.n.BatchNorm2d.forward.0"
    running = {"moving_mean": tensor(2), "moving_variance": tensor(2)}
    ours = {name: call(tensor(2)) | {"parameters": {"gamma": tensor(2)} | running}}
    theirs = {other: call(torch_tensor(2)) | {"parameters": {"weight": torch_tensor(2)}}}
    assert pair_of(tmp_path / "buffers", ours, theirs).compare(name).outcome == "pass"
    theirs[other]["parameters"]["bias"] = torch_tensor(2)
    found = pair_of(tmp_path / "bias", ours, theirs).compare(name)
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["parameters.bias"]


def test_a_gradient_that_one_framework_leaves_out_does_not_shift_the_others(tmp_path: Path) -> None:
    forward, other = {"Mint.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    ours = {"Mint.add.0.backward": {"input": [tensor(2)], "output": [None, tensor(3, at=5)]}}
    theirs = {"Torch.add.0.backward": {"input": [torch_tensor(2)], "output": [torch_tensor(3, at=6)]}}
    found = pair_of(tmp_path, forward | ours, other | theirs).compare("Mint.add.0.backward")
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["output.1"]
