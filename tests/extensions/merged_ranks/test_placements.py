"""DTensors become wholes by their placements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.extensions.merged_ranks.merged_dump import MergedDump, ParallelLayout, find_models, merge_model
from msprobe_hooks.extensions.merged_ranks.unshard import make_whole
from tests.support.dumps.dump_files import Json, forward, write_dump
from tests.support.dumps.recorder import element

_NAME = "Torch.mul.0.forward"
_GRADIENT = "Module.norm.LayerNorm.parameters_grad.0"
_REPLICATE: Json = {"Replicate": {}}
_PARTIAL: Json = {"Partial": {"reduce_op": "sum"}}


def _shard(dim: int) -> Json:
    return {"Shard": {"dim": dim}}


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) + 0.3


def _part(part: torch.Tensor, whole: torch.Tensor, mesh: Any, *placements: Json) -> Json:
    """Return the element of a DTensor as a rank records it: of the whole's shape, with its own statistics."""
    placed = {"device_mesh": mesh, "placements": list(placements), "type": "torch.distributed.tensor.DTensor"}
    return {**element(part), **placed, "shape": list(whole.shape)}


def _merged(folder: Path, *outputs: Json, tp: int, name: str = _NAME) -> list[MergedDump]:
    for rank, output in enumerate(outputs):
        body = {"weight": [output]} if name == _GRADIENT else forward(output=[output])
        write_dump(folder / "step0" / f"rank{rank}", {name: body}, level="mix")
    layout = ParallelLayout(tp=tp)
    return [merge_model(model, layout) for model in find_models(sorted(folder.rglob("dump.json")), layout)]


def _against(merged: MergedDump, whole: torch.Tensor, folder: Path) -> tuple[Json, list[str]]:
    """Return the output after a comparison with a run of one process, and why it could not be merged."""
    body = {"weight": [element(whole)]} if _GRADIENT in merged.records else forward(output=[element(whole)])
    write_dump(folder / "step0" / "rank0", {next(iter(merged.records)): body}, level="mix")
    (model,) = find_models([folder / "step0" / "rank0" / "dump.json"], ParallelLayout())
    ours, _, unmerged = make_whole(merged, merge_model(model, ParallelLayout()), ((2,), (1,)))
    output = ours.body(next(iter(ours.records)))
    return (output.get("output") or output.get("weight"))[0], [value.reason for value in unmerged]


def _is_whole(output: Json, whole: torch.Tensor) -> bool:
    expected = element(whole)
    assert output["shape"] == expected["shape"]
    return all(output[key] == pytest.approx(expected[key], rel=1e-6) for key in ("Max", "Min", "Mean", "Norm"))


@pytest.mark.parametrize("dim", [0, 1])
def test_shards_of_any_size_are_joined(tmp_path: Path, dim: int) -> None:
    whole = _random(5, 7)
    parts = [_part(part, whole, [0, 1], _shard(dim)) for part in whole.chunk(2, dim)]
    (merged,) = _merged(tmp_path, *parts, tp=2)
    assert _is_whole(merged.body(_NAME)["output"][0], whole)


def test_a_mesh_of_two_dimensions_divides_a_tensor_twice(tmp_path: Path) -> None:
    whole = _random(4, 6)
    parts = [quarter for half in whole.chunk(2, 0) for quarter in half.chunk(2, 1)]
    mesh = [[0, 1], [2, 3]]
    merged = _merged(tmp_path, *(_part(part, whole, mesh, _shard(0), _shard(1)) for part in parts), tp=2)
    assert [_is_whole(run.body(_NAME)["output"][0], whole) for run in merged] == [True, True]


def test_shards_of_data_parallel_ranks_are_whole_in_each_run(tmp_path: Path) -> None:
    whole = _random(3, 2)
    merged = _merged(tmp_path, *(_part(part, whole, [0, 1], _shard(0)) for part in whole.chunk(2)), tp=1)
    assert [_is_whole(run.body(_NAME)["output"][0], whole) for run in merged] == [True, True]


def test_equal_copies_are_kept_once(tmp_path: Path) -> None:
    whole = _random(3, 2)
    (merged,) = _merged(tmp_path / "ours", *[_part(whole, whole, [0, 1], _REPLICATE)] * 2, tp=2)
    output, reasons = _against(merged, whole, tmp_path / "theirs")
    assert (_is_whole(output, whole), reasons, "placements" in output) == (True, [], False)


def test_copies_that_differ_are_a_fault_however_far_apart(tmp_path: Path) -> None:
    whole = _random(3, 2)
    parts = [_part(one, whole, [0, 1], _REPLICATE) for one in (whole, whole * -5)]
    (merged,) = _merged(tmp_path / "ours", *parts, tp=2)
    output, reasons = _against(merged, whole, tmp_path / "theirs")
    assert (output["Norm"], reasons) == (pytest.approx(5 * float(whole.norm())), ["unequal"])


def test_addends_are_no_copies_even_where_they_are_equal(tmp_path: Path) -> None:
    whole = _random(3, 2)
    (merged,) = _merged(tmp_path / "ours", *[_part(whole / 2, whole, [0, 1], _PARTIAL)] * 2, tp=2)
    output, reasons = _against(merged, whole, tmp_path / "theirs")
    assert (output["Max"], reasons) == (None, ["unreduced"])


def test_a_part_that_is_not_recorded_leaves_the_value_unknown(tmp_path: Path) -> None:
    whole = _random(3, 2)
    parts = [_part(part, whole, [0, 1, 2], _shard(0)) for part in whole.chunk(3)]
    (merged,) = _merged(tmp_path / "ours", *parts[:2], tp=2)
    output, reasons = _against(merged, whole, tmp_path / "theirs")
    assert (output["Norm"], reasons) == (None, ["missing"])


def test_gradients_that_data_parallel_ranks_share_are_averages(tmp_path: Path) -> None:
    whole = _random(4)
    parts = [_part(part, whole, [0, 1], _shard(0)) for part in whole.chunk(2)]
    first, _ = _merged(tmp_path / "ours", *parts, tp=1, name=_GRADIENT)
    output, reasons = _against(first, whole * 2, tmp_path / "theirs")
    assert (output["Norm"], reasons) == (None, ["averaged"])


@pytest.mark.parametrize(
    "odd", [{"device_mesh": [[0], [0, 1]]}, {"device_mesh": "x"}, {"placements": [{}]}, {"placements": [_shard(9)]}]
)
def test_placements_that_make_no_sense_are_ignored(tmp_path: Path, odd: Json) -> None:
    whole = _random(3, 2)
    parts = [{**_part(whole, whole, [0, 1], _shard(0)), **odd}] * 2
    (merged,) = _merged(tmp_path, *parts, tp=2)
    assert merged.body(_NAME)["output"][0]["Norm"] == pytest.approx(float(whole.norm()))
