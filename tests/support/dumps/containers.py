"""Recorded runs whose tensors are files of their own, in containers, or in compressed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from msprobe_hooks import record

#: How tensors are stored, with the options of a recording.
OPTIONS: dict[str, dict[str, Any]] = {
    "pt": {"tensor_files": "pt"},
    "safetensors": {"tensor_files": "safetensors"},
    "compressed": {"tensor_files": "safetensors", "compression": "zstd"},
}
KINDS = tuple(OPTIONS)
CONTAINERS = KINDS[1:]


def recorded(folder: Path, kind: str, scale: float = 1.0) -> None:
    """Record a step with shared tensors, bools, complex numbers, a sparse, an empty and a scalar one."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 200), torch.nn.GELU(), torch.nn.Linear(200, 4))
    model[0].weight.data.mul_(scale)
    x = torch.randn(50, 8)
    with record(folder, "mix", model=model, task="tensor", **OPTIONS[kind]):
        mask = torch.logical_not(x[:, :1].gt(0))
        chosen = torch.where(mask, model(x), torch.zeros(()))
        torch.complex(chosen, chosen).abs().sum().backward()
        torch.relu(x), torch.sigmoid(x)
        torch.eye(3).to_sparse().coalesce()
        torch.empty(0, 3).exp()


def dump_of(run: Path) -> Path:
    """Return the dump of a recorded run."""
    return run / "step0" / "rank" / "dump.json"


def tensor_folder(run: Path) -> Path:
    """Return the folder with the tensors of a recorded run."""
    return dump_of(run).parent / "dump_tensor_data"


def every_kind(folder: Path) -> dict[str, Path]:
    """Record the same step in each kind, and return the folders by kind."""
    for kind in KINDS:
        recorded(folder / kind, kind)
    return {kind: folder / kind for kind in KINDS}
