"""Which kind of checkpoint a path is, and the one file of it that represents it: ids are of files."""

from __future__ import annotations

from pathlib import Path

from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.modes.checkpoint import checkpoint_files, dcp, megatron
from pytest_msprobe.modes.checkpoint.parameters import Checkpoint

_INDEX = "*.safetensors.index.json"
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def main_file(folder: Path) -> Path:
    """Return the file that represents a folder's checkpoint. Raises CheckpointError where there is none."""
    if (folder / megatron.LATEST).is_file():
        folder = megatron.newest(folder)
    if (folder / dcp.METADATA).is_file():
        return folder / dcp.METADATA
    found = sorted(folder.glob(f"mp_rank_*/{megatron.FILE}")) or sorted(folder.glob(_INDEX))
    found = found or sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES)
    if not found:
        raise CheckpointError(
            "no checkpoint in this folder",
            file=folder,
            remedy="name a file of torch or safetensors, or a folder of torch.distributed.checkpoint or Megatron",
        )
    if len(found) > 1 and found[0].name != megatron.FILE:
        raise CheckpointError(f"holds {len(found)} checkpoints", file=folder, remedy="name one of the files")
    return found[0]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint that a file represents. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError("no such file", file=path)
    if path.name == dcp.METADATA:
        checkpoint = dcp.read_dcp(path)
    elif path.name == megatron.FILE and path.parent.name.startswith("mp_rank_"):
        checkpoint = megatron.read_megatron(path)
    elif path.match(_INDEX):
        checkpoint = checkpoint_files.read_sharded(path)
    elif path.suffix == ".safetensors":
        checkpoint = checkpoint_files.read_safetensors(path)
    else:
        checkpoint = checkpoint_files.read_torch(path)
    if not checkpoint.parameters:
        raise CheckpointError("holds no tensors", file=path)
    return checkpoint
