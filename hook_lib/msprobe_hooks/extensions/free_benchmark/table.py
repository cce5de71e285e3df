"""The free benchmark's table, ``free_benchmark.csv``, in msprobe's columns: a row for what changed too much."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.writer import write_error

FILE_NAME = "free_benchmark.csv"
HEADER = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")


@dataclass(frozen=True, slots=True)
class Form:
    """Form of msprobe's table of a framework: its columns, the symbol of a change of sign, and shapes in words."""

    header: tuple[str, ...]
    sign_flip: str | float
    shape: Callable[[tuple[int, ...]], str]


TORCH_FORM = Form(HEADER, "symbol_flipping", lambda shape: f"torch.Size({list(shape)})")
# A ratio of 8 means a change of sign there.
MINDSPORE_FORM = Form(("rank", "pert_type", *HEADER[2:]), 7.0, str)


def row(
    where: tuple[int | None, str, str, int | None, str],
    ratio: float | None,
    dtype: str,
    shape: tuple[int, ...],
    index: int | None,
    *,
    flips_sign: bool,
    form: Form = TORCH_FORM,
) -> list[Any]:
    """Return a row: ``where`` are rank, perturbation, stage, step and API; what there is none of is empty."""
    max_rel = form.sign_flip if flips_sign else None if ratio is None else ratio - 1
    size = form.shape(shape) if dtype else None
    return ["" if value is None else value for value in (*where, max_rel, dtype, size, index)]


def append_rows(path: Path, rows: Sequence[list[Any]], form: Form = TORCH_FORM) -> None:
    """Append to a table, which gets its header where it is new. Raises RecordingError where the disk refuses."""
    try:
        is_new = not path.exists()
        with path.open("a", encoding="utf-8", newline="", errors="backslashreplace") as file:
            csv.writer(file).writerows([form.header, *rows] if is_new else rows)
    except OSError as error:
        raise write_error(path, "written", error) from None
