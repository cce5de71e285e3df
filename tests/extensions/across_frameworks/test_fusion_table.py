"""Several calls of MindSpore's that are one of PyTorch's: which are put together, and what becomes of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.values import read_values
from pytest_msprobe.extensions.across_frameworks.fusion_table import compositions
from pytest_msprobe.extensions.across_frameworks.translation import Mappings, composed_runs
from pytest_msprobe.extensions.across_frameworks.value_pairing import ApiMapping, ApiPair
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from tests.support.dumps.across_frameworks import composed_pair
from tests.support.dumps.across_frameworks import tensor as t
from tests.support.dumps.across_frameworks import torch_tensor as pt
from tests.support.dumps.dump_files import Json, forward, value, write_dump

MATMUL = "Primitive.matmul.MatMul.0.forward"


def call(*args: Any, out: Any, **settings: Any) -> Json:
    return forward(*args, output=[out]) | ({"details": {"settings": settings}} if settings else {})


def dense(bias: float | None = 5.0, **settings: Any) -> Json:
    """What ``nn.Dense`` records of an input of three dimensions: input 1, weight 3, product 4, bias 5, sum 6."""
    records = {
        "Primitive.shape_op.Shape.0.forward": call(t(2, 3, 4), out=value([2, 3, 4])),
        "Primitive.reshape.Reshape.0.forward": call(t(2, 3, 4), value([-1, 4]), out=t(6, 4, at=2)),
        MATMUL: call(t(6, 4, at=2), t(5, 4, at=3), out=t(6, 5, at=4), **settings),
        "Primitive.bias_add.BiasAdd.0.forward": call(t(6, 5, at=4), t(5, at=bias or 0), out=t(6, 5, at=6)),
        "Functional.shape.0.forward": call(t(6, 5, at=6), out=value([6, 5])),
        "Primitive.reshape.Reshape.1.forward": call(t(6, 5, at=6), value([2, 3, 5]), out=t(2, 3, 5, at=7)),
        "Primitive.reshape.Reshape.1.backward": {"input": [t(2, 3, 5, at=8)], "output": [t(6, 5, at=8)]},
        "Primitive.bias_add.BiasAdd.0.backward": {"input": [t(6, 5, at=8)], "output": [t(6, 5, at=8), t(5, at=9)]},
        MATMUL.replace("for", "back"): {"input": [t(6, 5, at=8)], "output": [t(6, 4, at=10), t(5, 4, at=11)]},
        "Primitive.reshape.Reshape.0.backward": {"input": [t(6, 4, at=10)], "output": [t(2, 3, 4, at=12)]},
    }
    return records if bias else {name: body for name, body in records.items() if "bias_add" not in name}


def linear(bias: float = 5.0) -> Json:
    """What ``nn.Linear`` records of the same."""
    return {
        "Functional.linear.0.forward": forward(pt(2, 3, 4), pt(5, 4, at=3), pt(5, at=bias), output=[pt(2, 3, 5, at=7)]),
        "Functional.linear.0.backward": {
            "input": [pt(2, 3, 5, at=8)],
            "output": [pt(2, 3, 4, at=12), pt(5, 4, at=11), pt(5, at=9)],
        },
    }


def dumps(tmp_path: Path, ours: Json, theirs: Json, **parents: Any) -> tuple[Dump, Dump]:
    target = write_dump(tmp_path / "target", ours, framework="mindspore", parents=parents.get("parents", {}))
    return read_dump(target), read_dump(write_dump(tmp_path / "golden", theirs, framework="pytorch"))


def outcomes(pair: DumpPair) -> dict[str, str]:
    return {name: pair.compare(name).outcome for name in pair.orders}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_dense_layer_is_linear_forward_and_backward(tmp_path: Path, is_reversed: bool) -> None:
    target, golden = dumps(tmp_path, dense(), linear())
    pair = composed_pair(golden, target) if is_reversed else composed_pair(target, golden)
    assert set(outcomes(pair).values()) == {"pass"}
    assert {len(pair.compare(name).rows) for name in pair.orders} == {4}
    assert {match.partner for match in pair.matching.matches} == {"name"}


def test_the_values_of_one_call_are_those_that_go_in_and_come_out(tmp_path: Path) -> None:
    target, golden = dumps(tmp_path, dense(), linear())
    composed, _, _ = composed_runs(target, golden, Mappings())
    assert list(composed.records) == [MATMUL, MATMUL.replace("for", "back")]
    found = {
        placed.place: (placed.value.shape, placed.value.statistics and placed.value.statistics[0])
        for record in composed.records
        for placed in read_values(composed, record)
        if record == MATMUL
    }
    assert found == {
        "input.0": ((2, 3, 4), 1),
        "input.1": ((5, 4), 3),
        "input.2": ((5,), 5),
        "output.0": ((2, 3, 5), 7),
    }


def test_a_changed_weight_is_a_differing_input_of_the_whole(tmp_path: Path) -> None:
    ours = dense()
    ours[MATMUL]["input_args"][1] = t(5, 4, at=3.1)
    found = composed_pair(*dumps(tmp_path, ours, linear())).compare(MATMUL)
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["input.1"]


def test_a_missing_bias_is_reported(tmp_path: Path) -> None:
    ours = dense(bias=None)
    ours["Primitive.reshape.Reshape.1.forward"] = call(t(6, 5, at=4), value([2, 3, 5]), out=t(2, 3, 5, at=7))
    del ours["Functional.shape.0.forward"]
    found = composed_pair(*dumps(tmp_path, ours, linear())).compare(MATMUL)
    assert [(row.place, row.messages) for row in found.rows if row.outcome == "fail"] == [
        ("input.2", ("None in place of float32",))
    ]


def test_calls_that_no_tensor_joins_stay_apart(tmp_path: Path) -> None:
    ours = dense()
    ours["Primitive.reshape.Reshape.1.forward"] = call(t(6, 5, at=66), value([2, 3, 5]), out=t(2, 3, 5, at=7))
    target, golden = dumps(tmp_path, ours, linear())
    composed, _, _ = composed_runs(target, golden, Mappings())
    assert [name for name in composed.records if name.endswith("forward")] == [
        MATMUL,
        "Primitive.reshape.Reshape.1.forward",
    ]


def test_equal_nan_joins_as_numbers_do(tmp_path: Path) -> None:
    ours = dense()
    for name, group in ((MATMUL, "output"), ("Primitive.bias_add.BiasAdd.0.forward", "input_args")):
        ours[name][group][0] |= {"Max": float("nan"), "Mean": "NaN"}
    composed, _, _ = composed_runs(*dumps(tmp_path, ours, linear()), Mappings())
    assert len(composed.records) == 2


def test_what_another_cell_calls_is_not_part_of_it(tmp_path: Path) -> None:
    parents = dict.fromkeys(dense(), "Cell.a.Dense.forward.0")
    parents["Primitive.reshape.Reshape.1.forward"] = "Cell.b.Other.forward.0"
    composed, _, _ = composed_runs(*dumps(tmp_path, dense(), linear(), parents=parents), Mappings())
    assert "Primitive.reshape.Reshape.1.forward" in composed.records


def test_a_product_that_does_not_transpose_is_no_linear(tmp_path: Path) -> None:
    target, golden = dumps(tmp_path, dense(transpose_a=False, transpose_b=False), linear())
    assert composed_runs(target, golden, Mappings())[0].records.keys() == dense().keys()


def test_a_run_without_linear_leaves_the_calls_as_they_are(tmp_path: Path) -> None:
    target, golden = dumps(tmp_path, dense(), {"Torch.matmul.0.forward": forward(pt(2), output=[pt(2)])})
    assert composed_runs(target, golden, Mappings())[0] is target


def test_two_runs_of_one_framework_keep_their_calls(tmp_path: Path) -> None:
    target, _ = dumps(tmp_path, dense(), linear())
    assert composed_runs(target, target, Mappings())[:2] == (target, target)


@pytest.mark.parametrize(
    ("apis", "values"),
    [({"Primitive.bias_add.BiasAdd": "Torch.add"}, []), ({}, ["Primitive.bias_add.BiasAdd.0.forward.output.0"])],
)
def test_what_a_users_file_names_stays(tmp_path: Path, apis: dict[str, str], values: list[str]) -> None:
    pairs = {name: ApiPair(name, other, "apis.yaml, line 1", {}) for name, other in apis.items()}
    target, golden = dumps(tmp_path, dense(), linear())
    composed, _, names = composed_runs(target, golden, Mappings(apis=ApiMapping(pairs)), values)
    assert composed.records.keys() == dense().keys()
    assert names == {}


def test_gradients_that_msprobe_lists_from_the_last_input_on_find_their_inputs(tmp_path: Path) -> None:
    ours = dense()
    for name in ("Primitive.bias_add.BiasAdd.0.backward", MATMUL.replace("for", "back")):
        ours[name]["output"].reverse()
    assert set(outcomes(composed_pair(*dumps(tmp_path, ours, linear()))).values()) == {"pass"}


def test_the_gradient_of_an_input_that_wants_none_does_not_shift_the_others(tmp_path: Path) -> None:
    ours, theirs = dense(), linear()
    ours[MATMUL]["input_args"] = [t(6, 4, at=2, requires_grad=False), t(5, 4, at=3, requires_grad=True)]
    ours[MATMUL.replace("for", "back")]["output"] = [t(5, 4, at=11)]
    del ours["Primitive.reshape.Reshape.0.backward"]
    theirs["Functional.linear.0.backward"]["output"] = [pt(5, 4, at=11), pt(5, at=9)]
    assert set(outcomes(composed_pair(*dumps(tmp_path, ours, theirs))).values()) == {"pass"}


def test_a_setting_is_an_argument_of_pytorchs_function(tmp_path: Path) -> None:
    ours = {
        "Primitive.layer_norm.LayerNorm.0.forward": call(t(2, 3), t(3, at=2), t(3, at=3), out=t(2, 3), epsilon=1e-3)
    }
    theirs = {
        "Functional.layer_norm.0.forward": forward(pt(2, 3), [3], pt(3, at=2), pt(3, at=3), 1e-5, output=[pt(2, 3)])
    }
    found = composed_pair(*dumps(tmp_path, ours, theirs)).compare("Primitive.layer_norm.LayerNorm.0.forward")
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["input.4"]


def test_a_malformed_call_is_no_part_of_another(tmp_path: Path) -> None:
    ours = dense()
    ours["Primitive.bias_add.BiasAdd.0.forward"] = {"input_args": 3, "output": None}
    composed, _, _ = composed_runs(*dumps(tmp_path, ours, linear()), Mappings())
    assert "Primitive.bias_add.BiasAdd.0.forward" in composed.records
    ours[MATMUL] = []
    composed, _, _ = composed_runs(*dumps(tmp_path, ours, linear()), Mappings())
    assert composed.records.keys() == ours.keys()


def test_the_tables_arguments_are_inputs_and_settings_of_its_own_calls() -> None:
    for composition in compositions():
        words = {part.word for part in composition.parts}
        arguments = {argument.word for argument in composition.arguments if argument}
        assert arguments | composition.settings.keys() <= words
