"""Checkpoints that are damaged, hostile or ambiguous: one error, or nothing that is left out."""

from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path, PurePath
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import read_torch
from pytest_msprobe.extensions.checkpoint.megatron import read_megatron
from pytest_msprobe.extensions.checkpoint.weights_folder import read_dcp


def names(path: Path, tree: Any) -> set[str]:
    torch.save(tree, path)
    return {*read_torch(path).parameters}


def test_tensors_that_are_called_alike_stay_two(tmp_path: Path) -> None:
    one = torch.ones(1)
    assert names(tmp_path / "a.pt", {"a": {"b": one}, "a.b": one, 0: one, "0": one}) == {"a.b", "a.b#2", "0", "0#2"}


def test_a_list_within_itself_is_one_error(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(CheckpointError, match="nested deeper than"):
        names(tmp_path / "a.pt", endless)


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """Write a folder of torch.distributed.checkpoint and return what says where its tensors are."""
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"w": torch.arange(4.0)}, checkpoint_id=tmp_path, no_dist=True)
    return tmp_path / ".metadata"


def test_metadata_change_no_class_that_others_use(metadata: Path) -> None:
    whole, name = metadata.read_bytes(), PurePath.__dict__.get("name")
    # The state of the class itself: no attributes, and slots of which one is its name.
    change = b"cpathlib\nPurePath\n(N}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xstb0"
    metadata.write_bytes(whole[:2] + change + whole[2:])
    with pytest.raises(CheckpointError, match="not the metadata of a checkpoint"):
        read_dcp(metadata)
    assert PurePath.__dict__.get("name") is name


def test_parts_that_do_not_fill_a_tensor_are_no_tensor(metadata: Path) -> None:
    known = pickle.loads(metadata.read_bytes())
    whole = known.state_dict_metadata["w"]
    for size, chunk, message in (
        ((6,), ChunkStorageMetadata(torch.Size([0]), torch.Size([4])), "its parts hold 4 of 6 elements"),
        ((4,), ChunkStorageMetadata(torch.Size([1]), torch.Size([4])), "no file has its part at"),
        ((2, 2), ChunkStorageMetadata(torch.Size([0]), torch.Size([4])), "cannot be read"),
    ):
        whole.size, whole.chunks = torch.Size(size), [chunk]
        metadata.write_bytes(pickle.dumps(known))
        with pytest.raises(CheckpointError, match=message):
            read_dcp(metadata).parameters["w"].load()


def write_rank(folder: Path, rank: str, model: Any, **sizes: Any) -> Path:
    path = folder / f"mp_rank_{rank}" / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    torch.save(
        {"args": Namespace(**{f"{key}_model_parallel_size": size for key, size in sizes.items()}), **model}, path
    )
    return path


def layers(count: int, at: int) -> dict[str, Any]:
    return {"model": {f"decoder.layers.{n}.norm.weight": torch.full((2,), float(at + n)) for n in range(count)}}


def test_layers_are_numbered_where_pipeline_stages_hold_different_numbers_of_them(tmp_path: Path) -> None:
    first = write_rank(tmp_path, "00_000", layers(1, 0), pipeline=3)
    write_rank(tmp_path, "00_001", layers(3, 1))
    write_rank(tmp_path, "00_002", layers(2, 4))
    found = read_megatron(first).parameters
    assert [float(found[f"decoder.layers.{n}.norm.weight"].load()[0]) for n in range(6)] == [0, 1, 2, 3, 4, 5]
    assert len(found) == 6


def test_encoder_and_decoder_of_one_model_stay_two(tmp_path: Path) -> None:
    model = {f"{side}.layers.0.norm.weight": torch.ones(1) for side in ("encoder", "decoder")}
    found = read_megatron(write_rank(tmp_path, "00", {"model": model})).parameters
    assert set(found) == {"encoder.layers.0.norm.weight", "decoder.layers.0.norm.weight"}


def test_what_tensor_parallel_ranks_share_is_whole_and_equal_or_reported(tmp_path: Path) -> None:
    norm = torch.tensor([1.0, torch.nan])
    model = {"decoder.layers.0.mlp.linear_fc1.layer_norm_weight": norm, "decoder.final.weight": norm}
    first = write_rank(tmp_path, "00", {"model": model}, tensor=2)
    write_rank(tmp_path, "01", {"model": model})
    found = read_megatron(first).parameters
    assert {each.shape for each in found.values()} == {(2,)}
    assert {each.note for each in found.values()} == {""}


def test_grouped_experts_are_numbered_and_what_ranks_hold_alike_is_compared(tmp_path: Path) -> None:
    def expert(rank: int) -> dict[str, Any]:
        at = torch.full((1, 1), float(rank))
        return {"model": {"decoder.layers.0.mlp.experts.linear_fc1.weight0": at, "decoder.layers.0.norm.weight": at}}

    first = write_rank(tmp_path, "00_000", expert(0), expert=2)
    write_rank(tmp_path, "00_001", expert(1))
    tree = torch.load(first, weights_only=False)
    tree["args"].num_experts = 2
    torch.save(tree, first)
    found = read_megatron(first).parameters
    experts = [found[f"decoder.layers.0.mlp.experts.linear_fc1.weight{n}"].load().item() for n in (0, 1)]
    assert experts == [0.0, 1.0]
    assert "hold different values" in found["decoder.layers.0.norm.weight"].note


def test_experts_of_tensor_and_expert_parallel_ranks_are_whole_and_numbered_through(tmp_path: Path) -> None:
    """Four experts, two on each expert parallel rank, each of whose layers tensor parallel ranks share."""
    name = "decoder.layers.0.mlp.experts.local_experts.{}.linear_fc{}.weight"
    draw = torch.Generator().manual_seed(0)
    whole = {(n, fc): torch.randn(4, 4, generator=draw) for n in range(4) for fc in (1, 2)}
    for tp in range(2):
        for ep in range(2):
            model = {name.format(n % 2, fc): w.chunk(2, fc - 1)[tp] for (n, fc), w in whole.items() if n // 2 == ep}
            path = write_rank(tmp_path, f"{tp:02d}_{ep:03d}", {"model": model}, tensor=2, expert=2)
            tree = torch.load(path, weights_only=False)
            tree["args"].num_experts = 4
            torch.save(tree, path)
    found = read_megatron(tmp_path / "mp_rank_00_000" / "model_optim_rng.pt").parameters
    assert len(found) == 8
    for (n, fc), expected in whole.items():
        assert torch.equal(found[name.format(n, fc)].load(), expected)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            {"model": {"a.linear_fc2.weight": torch.ones(3, 2), "b": torch.ones(1)}},
            "not all tensor parallel ranks have b",
        ),
        ({"model": {"a.linear_fc2.weight": torch.ones(4, 2)}}, "on tensor parallel ranks do not fit together"),
        ({"model": {"a.linear_fc2.weight": torch.ones(3)}}, "on tensor parallel ranks do not fit together"),
    ],
)
def test_ranks_that_do_not_fit_together_are_one_error(tmp_path: Path, second: Any, message: str) -> None:
    first = write_rank(tmp_path, "00", {"model": {"a.linear_fc2.weight": torch.ones(3, 2)}}, tensor=2)
    write_rank(tmp_path, "01", second)
    with pytest.raises(CheckpointError, match=message):
        read_megatron(first)


def test_a_rank_that_args_do_not_name_is_no_rank_to_leave_out(tmp_path: Path) -> None:
    first = write_rank(tmp_path, "00", layers(1, 0))
    write_rank(tmp_path, "01", layers(1, 0))
    with pytest.raises(CheckpointError, match="holds mp_rank_01, which is not a rank of the sizes in args"):
        read_megatron(first)


@pytest.mark.parametrize("tree", [[torch.ones(1)], {"args": [1], "model": {}}])
def test_what_is_no_dict_with_a_namespace_is_no_rank(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "mp_rank_00" / "model_optim_rng.pt"
    path.parent.mkdir()
    torch.save(tree, path)
    with pytest.raises(CheckpointError, match="args"):
        read_megatron(path)
