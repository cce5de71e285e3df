"""Which kind of checkpoint a path is, and the one file of it that represents it: ids are of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint import (
    checkpoint_files,
    dcp,
    megatron,
    weights_folder,
)
from pytest_msprobe.extensions.checkpoint.parameters import Checkpoint
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, sizes_of_config

_CONFIG = "config.json"
_INDEX = "*.safetensors.index.json"
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def main_file(folder: Path) -> Path:
    """Return the file that represents a folder's checkpoint. Raises CheckpointError where there is none."""
    if (folder / megatron.LATEST).is_file():
        folder = megatron.newest(folder)
    index = weights_folder.weights_index(folder)
    if index is not None:
        return index
    if (folder / dcp.METADATA).is_file():
        return folder / dcp.METADATA
    found = sorted(folder.glob(f"mp_rank_*/{megatron.FILE}")) or sorted(folder.glob(_INDEX))
    found = found or sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES)
    if not found:
        raise CheckpointError(
            "no checkpoint in this folder",
            file=folder,
            remedy="name a file of torch or safetensors, or a folder of torch.distributed.checkpoint, Megatron or "
            "write_weights",
        )
    if len(found) > 1 and found[0].name != megatron.FILE:
        raise CheckpointError(f"holds {len(found)} checkpoints", file=folder, remedy="name one of the files")
    return found[0]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint that a file represents. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError("no such file", file=path)
    if path.name == weights_folder.INDEX:
        checkpoint = weights_folder.read_weights(path)
    elif path.name == dcp.METADATA:
        checkpoint = dcp.read_dcp(path)
    elif path.name == megatron.FILE and path.parent.name.startswith("mp_rank_"):
        checkpoint = megatron.read_megatron(path)
    elif path.match(_INDEX):
        checkpoint = checkpoint_files.read_sharded(path)
    elif path.suffix == ".safetensors":
        checkpoint = checkpoint_files.read_safetensors(path)
    else:
        checkpoint = checkpoint_files.read_torch(path)
    if not checkpoint.names:
        raise CheckpointError("holds no tensors", file=path)
    config = path.parent / _CONFIG
    if not config.is_file():
        return checkpoint
    return replace(checkpoint, sizes=checkpoint.sizes.completed(read_sizes(config)))


def with_sizes(checkpoint: Checkpoint, config: Path | None) -> Checkpoint:
    """Return a checkpoint with the sizes of a model's ``config.json``, which are right. Raises CheckpointError."""
    return checkpoint if config is None else replace(checkpoint, sizes=read_sizes(config).completed(checkpoint.sizes))


def read_sizes(path: Path) -> ModelSizes:
    """Read the sizes of a model from its ``config.json``. Raises CheckpointError."""
    try:
        return sizes_of_config(decode_json(read_regular(path), dict[str, Any]))
    except (OSError, JsonError) as error:
        raise CheckpointError(f"not a configuration of a model: {error}", file=path) from None
