"""Small files that stand for more than anything can hold or walk: each is one error, and costs little."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from msprobe_hooks.dump.containers import Described, beginning
from msprobe_hooks.errors import StartError
from msprobe_hooks.extensions.environment.start_file import TensorFact
from pytest_msprobe.commands.main import main
from pytest_msprobe.engine.values import system_memory
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.leaves import TreeError, leaves
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from pytest_msprobe.extensions.environment import msprobe_pack


def shared(levels: int, leaf: Any) -> Any:
    """Return a dict of twice the same dict, so many levels deep."""
    for _ in range(levels):
        leaf = {"a": leaf, "b": leaf}
    return leaf


def shared_tuple(levels: int) -> Any:
    # torch and pickle write what is there once as a reference.
    leaf: Any = ()
    for _ in range(levels):
        leaf = (leaf, leaf)
    return leaf


@pytest.mark.parametrize(
    "tree", [shared(40, torch.ones(1)), shared(40, {}), [shared_tuple(40)]], ids=["tensors", "nothing", "tuples"]
)
def test_containers_that_share_their_entries_are_one_error(
    tmp_path: Path, tree: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(tree, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 10_000
    with pytest.raises(CheckpointError, match=r"a\.pt: .*the same containers are repeated too often"):
        read_checkpoint(tmp_path / "a.pt")
    assert main(["show", str(tmp_path / "a.pt")]) == 2
    assert "the same containers are repeated too often" in capsys.readouterr().err


def test_a_container_that_a_file_holds_twice_is_read_in_both_places(tmp_path: Path) -> None:
    part = {"w": torch.ones(1)}
    torch.save({"encoder": part, "decoder": part, "more": [part] * 3000}, tmp_path / "a.pt")
    assert len(read_checkpoint(tmp_path / "a.pt").parameters) == 3002


def test_a_long_list_is_no_repetition() -> None:
    assert sum(1 for _ in leaves({"order": list(range(50_000))})) == 50_000


def test_names_without_end_are_one_error() -> None:
    key = "k" * 6000
    with pytest.raises(TreeError, match="a name of more than 10000 characters"):
        list(leaves({key: {key: {key: torch.ones(1)}}}))


def test_an_argument_of_megatron_that_shares_its_entries_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "mp_rank_00").mkdir()
    tree = {"args": Namespace(tensor_model_parallel_size=shared(60, 1)), "model": {"w": torch.ones(1)}}
    torch.save(tree, tmp_path / "mp_rank_00/model_optim_rng.pt")
    with pytest.raises(CheckpointError, match=r"args\.tensor_model_parallel_size is not a valid size: a dict"):
        read_checkpoint(main_file(tmp_path))


@pytest.mark.parametrize("field", ["offset", "size", "dtype", "relative_path", "chunk"])
def test_metadata_whose_tuples_share_their_entries_are_one_error(tmp_path: Path, field: str) -> None:
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path, no_dist=True)
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    ((index, place),) = metadata.storage_data.items()
    endless = shared_tuple(60)
    known = metadata.state_dict_metadata["w"]
    if field == "offset":
        # The index is frozen, and would be hashed again.
        metadata.storage_data = {}
        metadata.storage_data[index] = place
        object.__setattr__(index, "offset", endless)
    elif field == "size":
        known.size = endless
    elif field == "dtype":
        known.properties.dtype = endless
    elif field == "chunk":
        object.__setattr__(known.chunks[0], "offsets", endless)
    else:
        object.__setattr__(place, field, endless)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"\.metadata: (not the metadata of a checkpoint|w cannot be read)"):
        read_checkpoint(tmp_path / ".metadata").parameters["w"].load()


def pack(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["env", "random/rank0.json", "weights/step0/rank0/weight.json", "pip"])
def test_a_file_of_a_pack_that_unpacks_to_more_than_any_is_one_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprobe_pack, "_LARGEST_FILE", 2**20)
    path = pack(tmp_path / "a.zip", **{name: "[" + "[]," * 2**19 + "[]]"})
    assert path.stat().st_size < 10_000
    with pytest.raises(StartError, match=rf"a\.zip: {name} unpacks to more than 1 MiB"):
        msprobe_pack.read_pack(path)


@pytest.mark.parametrize("name", ["env", "random/rank0.json", "weights/step0/rank0/weight.json"])
def test_lists_where_a_pack_has_none_are_never_made(tmp_path: Path, name: str) -> None:
    lists = "[" + "[]," * 2**15 + "[]]"
    fact = {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0}
    batch = f'{{"a": {{"b": {json.dumps(fact)}}}, "lists": {lists}, "deep": {{"x": {lists}}}}}'
    path = pack(tmp_path / "a.zip", **{"dataset/step0/rank0/dataset.json": batch, name: lists})
    tracemalloc.start()
    try:
        if "weights" in name:
            assert msprobe_pack.read_pack(path)[0].sections["batches"] == {"step0/a.b": TensorFact(1.0, 0.0, 0.5, 1.0)}
        else:
            with pytest.raises(StartError, match="not as msprobe writes it"):
                msprobe_pack.read_pack(path)
        # As lists the text takes twenty times as much.
        assert tracemalloc.get_traced_memory()[1] < 8 * len(batch)
    finally:
        tracemalloc.stop()


def test_a_compressed_tensor_that_does_not_fit_is_an_error_of_that_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    zstandard = pytest.importorskip("zstandard")

    count = 2**25
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(4 * count))
    head = beginning([Described("big", "float32", (count,), 4, len(frame)), Described("small", "float32", (2,), 4)])
    (tmp_path / "0.safetensors").write_bytes(head + frame + bytes(8))
    assert (tmp_path / "0.safetensors").stat().st_size < 20_000
    available = tmp_path / "meminfo"
    available.write_text("MemAvailable: 131072 kB\n")
    monkeypatch.setattr(system_memory, "_MEMINFO", available)
    assert main(["show", str(tmp_path / "0.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert "tensor 'big' takes 0.2 GiB to decompress, and 0.1 GiB are free" in shown
    assert "small: float32 [2]" in shown


def test_memory_that_the_system_refuses_is_an_error_of_that_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    import numpy as np

    from msprobe_hooks.dump import containers as compression

    frame = np.frombuffer(zstandard.ZstdCompressor(level=1).compress(bytes(4096)), np.uint8)

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(compression.FrameError, match=r"not enough memory for its 0.0 GiB"):
        compression.decompressed(frame, 4, 4096)
