"""The free benchmark's table, ``free_benchmark.csv``, in msprobe's columns: a row for what changed too much."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import RecordingError

FILE_NAME = "free_benchmark.csv"
HEADER = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")
_SIGN_FLIP = "symbol_flipping"


def row(
    where: tuple[int | None, str, str, int | None, str],
    ratio: float | None,
    dtype: str,
    shape: tuple[int, ...],
    index: int | None,
    *,
    flips_sign: bool,
) -> list[Any]:
    """Return a row: ``where`` are rank, perturbation, stage, step and API; what there is none of is empty."""
    max_rel = _SIGN_FLIP if flips_sign else None if ratio is None else ratio - 1
    size = f"torch.Size({list(shape)})" if dtype else None
    return ["" if value is None else value for value in (*where, max_rel, dtype, size, index)]


def append_rows(path: Path, rows: list[list[Any]]) -> None:
    """Append to a table, which gets its header where it is new. Raises RecordingError where the disk refuses."""
    try:
        is_new = not path.exists()
        with path.open("a", encoding="utf-8", newline="", errors="backslashreplace") as file:
            csv.writer(file).writerows([HEADER, *rows] if is_new else rows)
    except OSError as error:
        raise RecordingError(f"{path}: cannot be written: {error.strerror}") from None
