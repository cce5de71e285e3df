"""Large operands of which a call reads a part: that part is drawn, and nothing that is judged depends on the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.calls.arguments import build_arguments, tensor_source
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.inputs import large_tensors, sparse_reads
from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Variant, VariantDevice
from tests.corpus.faults import FAULTS
from tests.support.dumps.dump_files import Json, forward, tensor, value, write_dump

ROWS, WIDTH = 2**12, 64
TABLE = tensor(ROWS, WIDTH, dtype="bfloat16", low=-4.0, high=4.0, Mean=0.0, Norm=512.0, requires_grad=True)
INDEX = tensor(3, 5, dtype="int64", low=7, high=ROWS - 1)
REPEATED = tensor(3, 5, dtype="int64", low=7, high=12)
OUTPUT = tensor(3, 5, WIDTH, dtype="bfloat16", low=-4.0, high=4.0)
POLICY = Policy.load("default")


@pytest.fixture(autouse=True)
def tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tensors, "LARGE", ROWS * WIDTH)


def call_of(folder: Path, record: str, body: Json, backward: Json | None = None) -> Call:
    records = {f"{record}.0.forward": body} | ({} if backward is None else {f"{record}.0.backward": backward})
    return read_call(read_dump(write_dump(folder, records)), f"{record}.0.forward")


def drawn(call: Call) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the table as it is drawn for a call, the whole one, and the index."""
    arguments = build_arguments(call, seed=3, real_data=False)
    tensors = dict(arguments.tensors())
    path = max(tensors, key=lambda each: tensors[each].numel())
    recorded: Any = {f"args.{i}": each for i, each in enumerate(call.forward.args)}
    whole = tensor_source(call, seed=3, real_data=False)(recorded[path], path)
    index = next(each for each in tensors.values() if not each.is_floating_point())
    return tensors[path], whole, index


@pytest.mark.parametrize(
    ("record", "body"),
    [
        ("Functional.embedding", forward(INDEX, TABLE, output=[OUTPUT])),
        ("Functional.embedding", forward(INDEX, TABLE, value(3), None, value(2.0), value(True), output=[OUTPUT])),
        ("Torch.embedding", forward(TABLE, INDEX, value(-1), value(True), value(False), output=[OUTPUT])),
        ("Aten.embedding", forward(TABLE, INDEX, output=[OUTPUT])),
        ("Torch.index_select", forward(TABLE, value(0), tensor(9, dtype="int32", low=7, high=ROWS - 1))),
        ("Tensor.__getitem__", forward(TABLE, INDEX, output=[OUTPUT])),
        ("Tensor.__getitem__", forward(TABLE, tensor(9, dtype="int64", low=-40, high=-2), output=[OUTPUT])),
        ("Aten.index", forward(TABLE, [INDEX], output=[OUTPUT])),
        ("Functional.embedding_bag", forward(INDEX, TABLE, output=[tensor(3, WIDTH, dtype="bfloat16")])),
    ],
)
def test_rows_that_are_read_are_those_of_the_whole_table_and_most_others_are_zero(
    tmp_path: Path, record: str, body: Json
) -> None:
    table, whole, index = drawn(call_of(tmp_path, record, body))
    rows = index.reshape(-1).long()
    assert torch.equal(table[rows], whole[rows])
    assert (table != 0).any(dim=1).double().mean().item() < 0.1


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_elements_that_gather_takes_are_those_of_the_whole_operand(tmp_path: Path, dim: int) -> None:
    index = tensor(8, 3, dtype="int64", low=0, high=60)
    call = call_of(tmp_path, "Torch.gather", forward(TABLE, value(dim), index, output=[index]))
    table, whole, places = drawn(call)
    assert torch.equal(table.gather(dim, places), whole.gather(dim, places))
    assert (table != 0).any(dim=1).double().mean().item() < 0.1


@pytest.mark.parametrize("dim", [1, 2])
def test_slices_along_an_inner_dimension_are_those_of_the_whole_operand(tmp_path: Path, dim: int) -> None:
    index = tensor(1, dtype="int64", low=3, high=63)
    body = forward(tensor(2, 64, 2**11), value(dim), index, output=[index])
    table, whole, places = drawn(call_of(tmp_path, "Torch.index_select", body))
    assert torch.equal(table.index_select(dim, places), whole.index_select(dim, places))


def test_what_gather_of_mindspore_takes_are_rows() -> None:
    read = sparse_reads.slices(DrawnArguments([torch.zeros(ROWS, WIDTH), torch.tensor([3, 9]), 0], {}, 0))
    assert read is not None
    assert (read.starts.tolist(), read.length) == ([[3 * WIDTH, 9 * WIDTH]], WIDTH)


def test_a_table_whose_rows_are_written_to_is_drawn_as_a_whole(tmp_path: Path) -> None:
    table, whole, _ = drawn(
        call_of(tmp_path, "Functional.embedding", forward(INDEX, TABLE, None, value(1.0), output=[OUTPUT]))
    )
    assert torch.equal(table, whole)


def test_a_table_that_a_mask_or_several_indices_select_from_is_drawn_as_a_whole(tmp_path: Path) -> None:
    columns = tensor(3, 5, dtype="int64", low=0, high=WIDTH - 1)
    for index in (tensor(ROWS, dtype="bool", low=False, high=True), [INDEX, columns]):
        table, whole, _ = drawn(call_of(tmp_path, "Tensor.__getitem__", forward(TABLE, index, output=[OUTPUT])))
        assert torch.equal(table, whole)


def test_a_table_of_which_most_is_read_is_drawn_as_a_whole(tmp_path: Path) -> None:
    many = tensor(2**15, dtype="int64", low=0, high=ROWS - 1)
    table, whole, _ = drawn(call_of(tmp_path, "Functional.embedding", forward(many, TABLE, output=[OUTPUT])))
    assert torch.equal(table, whole)


def touching(variants: tuple[Variant, ...], api: str) -> list[Variant]:
    return [each for each in variants if each.touches(api)]


@pytest.mark.parametrize(
    "variant",
    touching((*FAULTS, *CORRECT_DEVICES), "embedding"),
    ids=lambda each: each.name,
)
def test_verdicts_are_those_of_a_whole_table(tmp_path: Path, variant: Variant) -> None:
    backward = {"input": [OUTPUT], "output": [TABLE]}
    call = call_of(tmp_path, "Functional.embedding", forward(REPEATED, TABLE, output=[OUTPUT]), backward)
    source = tensor_source(call, seed=3, real_data=False)
    parts, whole = (
        Replay(call, ReplayConfig(VariantDevice(variant), POLICY, TorchFramework(), seed=3), each)
        for each in (None, source)
    )
    for direction in ("forward", "backward"):
        found, expected = (each.judge(direction).verdict.outcome for each in (parts, whole))
        assert found == expected != "skip"


def test_a_healthy_device_passes_in_both_directions(tmp_path: Path) -> None:
    backward = {"input": [OUTPUT], "output": [TABLE]}
    call = call_of(tmp_path, "Functional.embedding", forward(INDEX, TABLE, value(7), output=[OUTPUT]), backward)
    replay = Replay(call, ReplayConfig(CpuDevice(), POLICY, TorchFramework(), seed=3))
    assert [replay.judge(direction).verdict.outcome for direction in ("forward", "backward")] == ["pass", "pass"]
