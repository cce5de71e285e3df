"""Trees of converted kernel files, as CANN's converter and msprobe's ``parse`` leave them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_kernel(
    tree: Path, op: str, time: int, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], kind: str = "Add"
) -> list[Path]:
    """Write the files of one execution below ``tree/<op>/<time>``, and return them."""
    folder = tree / op / str(time)
    folder.mkdir(parents=True)
    paths = []
    for side, arrays in (("input", inputs), ("output", outputs)):
        for index, array in enumerate(arrays):
            paths.append(folder / f"{kind}.{op}.3.7.{time}.{side}.{index}.npy")
            np.save(paths[-1], array)
    return paths
