"""Programs that are recorded under MindSpore, and what their dumps then hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor

from msprobe_hooks import record

Json = dict[str, Any]


def read(folder: Path, name: str = "dump.json") -> Json:
    """Return what a file of the only recorded step and rank holds."""
    (path,) = folder.glob(f"step0/rank*/{name}")
    content: Json = json.loads(path.read_text())
    return content


def recorded(folder: Path, program: Callable[[], Any], **options: Any) -> Json:
    """Record a program and return its records by name."""
    with record(folder, framework="mindspore", **options):
        program()
    data: Json = read(folder)["data"]
    return data


def tensor(*shape: int, seed: int = 0) -> Tensor:
    """Return normal values in float32, the same for the same seed."""
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
