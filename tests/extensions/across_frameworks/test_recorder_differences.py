"""A run of MindSpore that msprobe recorded, compared with the same run recorded here."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
from pytest_msprobe.extensions.across_frameworks.translation import read_mappings, translation
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from tests.support.dumps.dump_files import Json, tensor_around, write_dump

NAME = "Primitive.matmul.MatMul.0"


def tensor(*shape: int, at: float = 1.0, by_msprobe: bool = False, dtype: str = "Float32") -> Json:
    return tensor_around(*shape, dtype=dtype, at=at, **({} if by_msprobe else {"requires_grad": False}))


def records(*gradients: Json | None, by_msprobe: bool = False, name: str = NAME) -> Json:
    x = tensor(2, by_msprobe=by_msprobe)
    return {
        f"{name}.forward": {"input_args": [x], "input_kwargs": {}, "output": [x]},
        f"{name}.backward": {"input": [x], "output": [*gradients]},
    }


def pair_of(tmp_path: Path, ours: Json, theirs: Json) -> DumpPair:
    target, golden = (
        read_dump(write_dump(tmp_path / side, content, framework="mindspore"))
        for side, content in (("target", ours), ("golden", theirs))
    )
    options = AcrossOptions()
    names = translation(target, golden, read_mappings(options), options)
    return DumpPair(0, target, golden, policy=load_policy("default"), translation=names)


def test_gradients_of_a_primitive_are_those_of_the_inputs_from_the_last_on(tmp_path: Path) -> None:
    ours = records(tensor(2, 2), tensor(2, 2, at=5))
    theirs = records(tensor(2, 2, at=5, by_msprobe=True), tensor(2, 2, by_msprobe=True), by_msprobe=True)
    assert pair_of(tmp_path / "right", ours, theirs).compare(f"{NAME}.backward").outcome == "pass"
    assert pair_of(tmp_path / "wrong", ours, {**theirs, **records()}).compare(f"{NAME}.backward").outcome == "fail"
    ours[f"{NAME}.backward"]["output"].reverse()
    assert pair_of(tmp_path / "turned", ours, theirs).compare(f"{NAME}.backward").outcome == "fail"


def test_a_gradient_that_only_msprobe_computes_is_left_out(tmp_path: Path) -> None:
    name = "Tensor.__add__.0"
    ours = records(None, tensor(2), name=name)
    theirs = records(*[tensor(2, by_msprobe=True)] * 2, by_msprobe=True, name=name)
    found = pair_of(tmp_path, ours, theirs).compare(f"{name}.backward")
    assert found.outcome == "pass"
    assert {row.place for row in found.rows if row.unmeasured == "left out"} == {"output.0"}


def test_two_recordings_of_one_kind_are_compared_place_by_place(tmp_path: Path) -> None:
    ours, theirs = records(tensor(2), tensor(2, at=5)), records(tensor(2, at=5), tensor(2))
    assert pair_of(tmp_path, ours, theirs).compare(f"{NAME}.backward").outcome == "fail"


@pytest.mark.parametrize(
    ("golden", "outcome"), [({"Norm": 44.54211426}, "pass"), ({"Norm": 44.543}, "fail"), ({"Max": 8}, "fail")]
)
@pytest.mark.parametrize("by_msprobe", [True, False])
def test_norms_of_integers_in_32_bits_are_those_of_64_bits(
    tmp_path: Path, golden: Json, outcome: str, by_msprobe: bool
) -> None:
    whole = {"Max": 9, "Min": 1, "Mean": 4.5, "Norm": 44.54211490}
    ours, theirs = records(), records(by_msprobe=by_msprobe)
    for side, numbers in ((ours, whole), (theirs, whole | golden)):
        element = side[f"{NAME}.forward"]["input_args"][0] | {"dtype": "Int64"} | numbers
        side[f"{NAME}.forward"]["input_args"] = [element]
    found = pair_of(tmp_path, ours, theirs).compare(f"{NAME}.forward").outcome
    assert found == (outcome if by_msprobe else "fail")
