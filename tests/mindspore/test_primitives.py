"""Primitives that cells hold: what they were made with is recorded, and they are judged by definitions in torch."""

from __future__ import annotations

import json
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, amp, nn

from msprobe_hooks import record
from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.extensions.mindspore.primitives.registry import TABLE
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip
from pytest_msprobe.results.result import DirectionResult
from tests.corpus.mindspore_primitives import HELD, Held, all_kinds, record_held
from tests.engine.replay.ops.test_op_info import OF_MINDSPORE
from tests.mindspore.calls import record as call_of
from tests.mindspore.calls import tensor
from tests.mindspore.checking import check, setup_with
from tests.support.dumps.dump_files import Json, write_dump

# Of these the CPU has no kernel, or MindSpore's own functions no class that can be held.
NOT_ON_THIS_CPU = {"Conv3DTranspose", "Conv2DBackpropInput", "DynamicGRUV2", "DynamicRNN", "InstanceNorm", "RmsNorm"}
# MindSpore 2.10 on a CPU: the gradient of SeLU is not its derivative, and the kernel of momentum knows no settings.
WRONG = {"Primitive.held.SeLU.0.backward", "Primitive.held.ApplyMomentum.0.forward"}


def of_cell(cell: nn.Cell, folder: Path, *inputs: Tensor) -> Json:
    with record(folder, model=cell, framework="mindspore", list=["Primitive"]) as session:
        mindspore.grad(lambda: cell(*inputs).sum(), None, cell.trainable_params())()
    [written] = session.summary.folders
    records: Json = json.loads((written / "dump.json").read_text())["data"]
    return records


def drawn(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("place", range(len(HELD)), ids=[f"{i}-{held.kind}" for i, held in enumerate(HELD)])
def test_what_mindspore_computes_agrees_with_the_definition_forward_and_backward(place: int, tmp_path: Path) -> None:
    held = HELD[place]
    results = list(check(record_held(held, tmp_path), setup_with()))
    assert len(results) == (2 if held.differentiable else 1)
    wrong = {result.record: result.verdict.reason for result in results if result.verdict.outcome != "pass"}
    assert wrong.keys() <= WRONG, wrong


def test_every_definition_is_tried() -> None:
    assert TABLE.keys() - set(all_kinds()) == NOT_ON_THIS_CPU


def test_what_is_special_about_a_primitive_is_said_of_one_that_is_judged() -> None:
    own = {definition.counterpart.partition(".")[2] for definition in TABLE.values()}
    # What leaves memory as it found it is not judged.
    assert own | UNDEFINED_RESULTS >= OF_MINDSPORE


def test_defects_of_mindspores_kernels_are_found(tmp_path: Path) -> None:
    held = [
        Held("SeLU", (drawn(4, 6),)),
        Held("ApplyMomentum", (*map(drawn, (3, 3)), 0.1, drawn(3), 0.9), {"use_nesterov": True}, ()),
        # It is to return the input, and has the sum in each element.
        Held("ReduceSum", (drawn(4, 6), ()), {"skip_mode": True}, ()),
    ]
    failed = {
        result.record: result.verdict.reason
        for i, each in enumerate(held)
        for result in check(record_held(each, tmp_path / str(i)), setup_with())
        if result.verdict.outcome == "fail"
    }
    assert failed.keys() == WRONG | {"Primitive.held.ReduceSum.0.forward"}
    assert failed["Primitive.held.ReduceSum.0.forward"].startswith("all 24 elements wrong, ")


def test_a_primitives_settings_are_in_its_record(tmp_path: Path) -> None:
    records = of_cell(nn.Conv2d(2, 3, 3, stride=2, pad_mode="same"), tmp_path, drawn(1, 2, 5, 5))
    settings = records["Primitive.conv2d.Conv2D.0.forward"]["details"]["settings"]
    assert {key: settings[key] for key in ("out_channel", "kernel_size", "pad_mode", "stride")} == {
        "out_channel": 3, "kernel_size": [3, 3], "pad_mode": "same", "stride": [2, 2],
    }  # fmt: skip


def test_dtypes_are_reported_among_the_settings(tmp_path: Path) -> None:
    dump = record_held(Held("Argmax", (drawn(2, 3),), {"output_type": mindspore.int64}, ()), tmp_path)
    details = json.loads(dump.read_text())["data"]["Primitive.held.Argmax.0.forward"]["details"]
    assert details["settings"]["output_type"] == {"type": "mindspore.dtype", "value": "Int64"}


@pytest.mark.parametrize(
    ("held", "recorded"),
    [
        (Held("AvgPool", (drawn(1, 2, 8, 8),), {"kernel_size": 3, "pad_mode": "same"}, ()), {"pad_mode": "valid"}),
        (Held("LayerNorm", (drawn(3, 4), drawn(4), drawn(4)), {"epsilon": 1e-3}, ()), {"epsilon": 2e-3}),
        (Held("Softmax", (drawn(3, 3),), {"axis": 0}, ()), {"axis": 1}),
        (
            Held("Conv2D", (drawn(1, 2, 8, 8), drawn(2, 2, 3, 3)), {"out_channel": 2, "kernel_size": 3}, ()),
            {"pad_mode": "same"},
        ),
        # Its running statistics have more bits than its image.
        (
            Held(
                "BatchNorm",
                (drawn(8, 2, 4, 4).half(), *map(drawn, (2, 2, 2)), drawn(2).abs()),
                {"is_training": True, "momentum": 0.1},
                (),
            ),
            {"momentum": 0.5},
        ),
    ],
    ids=lambda each: each.kind if isinstance(each, Held) else "",
)
def test_a_device_that_computes_with_other_settings_is_found(held: Held, recorded: Json, tmp_path: Path) -> None:
    dump = record_held(held, tmp_path)
    content = json.loads(dump.read_text())
    [name] = content["data"]
    content["data"][name]["details"]["settings"] |= recorded
    dump.write_text(json.dumps(content))
    call = read_call(read_dump(dump), name)
    assert Replay(call, setup_with(), function=lambda **_: held.make()).forward().verdict.outcome == "fail"
    assert Replay(call, setup_with()).forward().verdict.outcome == "pass"


def without_settings(held: Held, folder: Path) -> dict[str, DirectionResult]:
    """Check a record as msprobe writes it."""
    dump = record_held(held, folder)
    content = json.loads(dump.read_text())
    for body in content["data"].values():
        body.pop("details", None)
    dump.write_text(json.dumps(content))
    return {result.record.rpartition(".")[2]: result for result in check(dump, setup_with())}


@pytest.mark.parametrize(
    "held",
    [
        Held("MatMul", (drawn(4, 6), drawn(5, 6)), {"transpose_b": True}, (0, 1)),
        Held("BatchMatMul", (drawn(2, 4, 6), drawn(2, 4, 5)), {"transpose_a": True}, (0, 1)),
        Held("BiasAdd", (drawn(4, 6), drawn(6)), {}, (0, 1)),
        Held("Gather", (drawn(9, 5), Tensor([[1, 2]], mindspore.int32), 0)),
        Held("Concat", ((drawn(4, 6), drawn(4, 2)),), {"axis": 1}),
        Held("Stack", ((drawn(4), drawn(4)),), {"axis": -1}),
        Held("Split", (drawn(4, 6),), {"axis": 1, "output_num": 3}),
        Held("ReduceSum", (drawn(4, 6), 1), {"keep_dims": True}),
        Held("Squeeze", (drawn(4, 1, 6),), {"axis": 1}),
        Held("Shape", (drawn(4, 6),), {}, ()),
    ],
    ids=lambda held: held.kind,
)
def test_where_no_settings_were_recorded_the_shapes_show_what_they_can(held: Held, tmp_path: Path) -> None:
    results = without_settings(held, tmp_path)
    assert {result.verdict.outcome for result in results.values()} == {"pass"}


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        (Held("MatMul", (drawn(5, 5), drawn(5, 5)), {"transpose_b": True}), "MatMul needs transpose_a, transpose_b"),
        (Held("Softmax", (drawn(4, 6),)), "Softmax needs axis"),
        (Held("Stack", ((drawn(2), drawn(2)),), {"axis": -1}), "Stack needs axis"),
        (Held("MaxPool", (drawn(1, 1, 4, 4),)), "MaxPool needs kernel_size, strides, pad_mode, data_format"),
    ],
)
def test_what_the_shapes_leave_open_is_a_skip_that_names_the_settings(held: Held, missing: str, tmp_path: Path) -> None:
    for result in without_settings(held, tmp_path).values():
        assert result.skip is MindSporeSkip.NO_SETTINGS
        assert result.verdict.reason.endswith(missing)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"transpose_a": {"type": "some.Class"}, "transpose_b": False}, "some.Class"),
        ({"transpose_a": False, "transpose_b": False, "no_such": 1}, "no_such"),
    ],
)
def test_settings_that_are_none_of_the_primitives_cost_its_record_alone(
    settings: Json, reason: str, tmp_path: Path
) -> None:
    records = call_of("Primitive.f.MatMul", tensor(4, 6), tensor(6, 5))
    records["Primitive.f.MatMul.0.forward"]["details"] = {"settings": settings}
    [result] = check(write_dump(tmp_path, records, framework="mindspore"), setup_with())
    assert result.verdict.outcome == "skip"
    assert reason in result.verdict.reason


def test_cells_of_mixed_precision_are_judged_as_they_compute(tmp_path: Path) -> None:
    cell = nn.SequentialCell(nn.Dense(6, 5), nn.ReLU(), nn.Dense(5, 4))
    of_cell(amp.auto_mixed_precision(cell, "O2"), tmp_path, drawn(7, 6))
    [dump] = tmp_path.rglob("dump.json")
    results = list(check(dump, setup_with()))
    assert len(results) > 8
    assert {result.record: result.verdict.reason for result in results if result.verdict.outcome != "pass"} == {}
