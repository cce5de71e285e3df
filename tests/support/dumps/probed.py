"""Gradients as a gradient probe writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from msprobe_hooks.extensions.monitor.grad_probe.probe import GradientRow, ProbeFiles, ProbeSettings


def write_probe(folder: Path, steps: Sequence[Mapping[str, ArrayLike]], *, level: str = "L1", first: int = 0) -> None:
    """Write what a probe of one rank does of the gradients by parameter, from step ``first`` on."""
    files = ProbeFiles(folder, ProbeSettings(grad_level=level))
    md5 = 32 * "0" if level == "L0" else None
    for step, gradients in enumerate(steps, first):
        arrays = {name: np.asarray(gradient, np.float32) for name, gradient in gradients.items()}
        rows = [
            GradientRow(name, each.shape, float(each.max()), float(each.min()), float(np.linalg.norm(each)), md5=md5)
            for name, each in arrays.items()
        ]
        files.write(step, rows, [(name, each > 0) for name, each in arrays.items()])
