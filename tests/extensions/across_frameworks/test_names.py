"""Calls, methods and layers that have another name in the other framework find each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
from pytest_msprobe.extensions.across_frameworks.translation import read_mappings, translation
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from tests.support.dumps.across_frameworks import call, pair_of, partners, tensor, torch_tensor, write


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Mint.add.0.forward", "Torch.add.0.forward"),
        ("MintFunctional.relu.0.forward", "Functional.relu.0.forward"),
        ("Functional.abs.0.forward", "Torch.abs.0.forward"),
        ("Functional.dense.0.forward", "Functional.linear.0.forward"),
        ("Tensor.gather_elements.0.forward", "Tensor.gather.0.forward"),
        ("Tensor.__add__.0.forward", "Tensor.add.0.forward"),
    ],
)
def test_an_api_of_one_framework_finds_that_of_the_other(tmp_path: Path, ours: str, theirs: str) -> None:
    pair = pair_of(tmp_path, {ours: call(tensor(2))}, {theirs: call(torch_tensor(2))})
    assert partners(pair) == {ours: theirs}
    assert pair.compare(ours).outcome == "pass"


def test_two_apis_that_are_one_in_the_other_framework_count_together(tmp_path: Path) -> None:
    ours = {
        "Mint.matmul.0.forward": call(tensor(2)),
        "Functional.matmul.0.forward": call(tensor(3)),
        "Mint.matmul.1.forward": call(tensor(4)),
    }
    theirs = {f"Torch.matmul.{i}.forward": call(torch_tensor(2 + i)) for i in range(3)}
    assert list(partners(pair_of(tmp_path, ours, theirs)).values()) == list(theirs)


def test_casts_that_pytorch_writes_in_one_way_count_together(tmp_path: Path) -> None:
    ours = {
        "Tensor.astype.0.forward": call(tensor(2)),
        "Tensor.to.0.forward": call(tensor(3)),
        "Tensor.astype.1.forward": call(tensor(4)),
    }
    theirs = {f"Tensor.to.{i}.forward": call(torch_tensor(2 + i)) for i in range(3)}
    assert list(partners(pair_of(tmp_path, ours, theirs)).values()) == list(theirs)


def test_a_layer_named_like_a_framework_keeps_its_name(tmp_path: Path) -> None:
    name = "Cell.Mint.Cell.Block.forward.0"
    pair = pair_of(tmp_path, {name: call(tensor(2))}, {"Module.Mint.Cell.Block.forward.0": call(torch_tensor(2))})
    assert partners(pair) == {name: "Module.Mint.Cell.Block.forward.0"}


def test_mindtorch_has_the_names_of_pytorch(tmp_path: Path) -> None:
    ours, theirs = {"Torch.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    pair = pair_of(tmp_path, ours, theirs, "mindtorch pytorch")
    assert pair.compare("Torch.add.0.forward").outcome == "pass"


def test_a_method_finds_the_function_of_its_name_in_the_same_module(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, {}, {})
    module = {"Cell.a.Block.forward.0": call(tensor(2)), "Mint.reshape.0.forward": call(tensor(2))}
    other = {"Module.a.Block.forward.0": call(torch_tensor(2)), "Tensor.reshape.0.forward": call(torch_tensor(2))}
    write(tmp_path / "target", "mindspore", module, {"Mint.reshape.0.forward": "Cell.a.Block.forward.0"})
    write(tmp_path / "golden", "pytorch", other, {"Tensor.reshape.0.forward": "Module.a.Block.forward.0"})
    target, golden = (read_dump(tmp_path / side / "dump.json") for side in ("target", "golden"))
    pair = DumpPair(
        0,
        target,
        golden,
        policy=load_policy("default"),
        translation=translation(target, golden, read_mappings(AcrossOptions()), AcrossOptions()),
    )
    assert partners(pair)["Mint.reshape.0.forward"] == "Tensor.reshape.0.forward"


@pytest.mark.parametrize(("count", "found"), [(2, 2), (3, 0)])
def test_without_modules_methods_find_functions_where_they_are_as_many(tmp_path: Path, count: int, found: int) -> None:
    same = {"Mint.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    ours = same[0] | {f"Mint.reshape.{i}.forward": call(tensor(2)) for i in range(2)}
    theirs = same[1] | {f"Tensor.reshape.{i}.forward": call(torch_tensor(2)) for i in range(count)}
    pairs = partners(pair_of(tmp_path, ours, theirs))
    assert sum(name is not None and pairs[name] is not None for name in ours) == 1 + found


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("fc2.Dense: head.Linear", "Module.head.Linear.forward.0"),
        ("fc2: head", "Module.head.Dense.forward.0"),
        ("c2: head", None),
    ],
)
def test_a_cell_mapping_replaces_whole_words(tmp_path: Path, text: str, module: str | None) -> None:
    theirs = {name: call(torch_tensor(5)) for name in ("Module.head.Linear.forward.0", "Module.head.Dense.forward.0")}
    ours = {"Cell.fc2.Dense.forward.0": call(tensor(2))}
    assert partners(pair_of(tmp_path, ours, theirs, cells=text))["Cell.fc2.Dense.forward.0"] == module
