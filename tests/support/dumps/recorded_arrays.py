"""Dumps of one call with arrays that a test gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.dumps.dump_files import Json, tensor, write_dump

RECORD = "Module.q.Linear.forward.0"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)


def element(folder: Path, place: str, array: Any, record: str) -> Json:
    name = f"{record}.{place}.npy"
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    np.save(folder / "dump_tensor_data" / name, array)
    numbers = {"Max": float(array.max()), "Min": float(array.min()), "Mean": float(array.mean())}
    norm = float(np.linalg.norm(array.astype(np.float64)))
    dtype = str(array.dtype)
    return tensor(*array.shape, dtype=dtype) | numbers | {"Norm": norm, "data_name": name}


def recorded(
    folder: Path, given: Any, made: Any, task: str = "tensor", record: str = RECORD, framework: str = "pytorch"
) -> Path:
    """Write the dump of one call: what it was given and made, arrays each."""
    of_given = [element(folder, f"input.{place}", array, record) for place, array in enumerate(given)]
    body: Json = {"input_args": of_given, "input_kwargs": {}, "output": [element(folder, "output.0", made, record)]}
    if task != "tensor":
        for leaf in [*body["input_args"], *body["output"]]:
            del leaf["data_name"]
    return write_dump(folder, {record: body}, task=task, level="L0", framework=framework)
