"""The files of one rank of a probed run: ``grad_summary_<step>.csv`` and ``step<step>/<parameter>.npy``."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from msprobe_hooks.dump.writer import make_folder
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.config import ProbeSettings
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.recording.vectored_write import write_npy

_log = logging.getLogger("msprobe_hooks")

_FILE_MODE = 0o640


@dataclass(frozen=True, slots=True)
class GradientRow:
    """Row of a summary on one gradient.

    ``norm`` is the 2-norm. ``shares`` are the fractions of elements in each interval between the bounds and of those
    that are 0, at level L2; ``md5``, of the elements as float32, at level L0.
    """

    parameter: str
    shape: tuple[int, ...]
    max: float
    min: float
    norm: float
    shares: tuple[float, ...] = ()
    md5: str | None = None


class ProbeFiles:
    """Writes steps below the folder of a rank, whole files only; those of a former run are overwritten.

    Raises OSError or RecordingError where the disk refuses.
    """

    def __init__(self, folder: Path, settings: ProbeSettings) -> None:
        make_folder(folder)
        self.folder = folder
        self._settings = settings
        self._last = -1
        former = sum(1 for _ in folder.glob("grad_summary_*.csv"))
        if former:
            _log.warning(
                "%s holds %d steps of an earlier run; a step that is written again replaces the old one", folder, former
            )

    def write(self, step: int, rows: Sequence[GradientRow], signs: Iterable[tuple[str, SignMap]]) -> None:
        """Write the gradients of one step; the summary comes last. To a step that was written here, add them.

        Where the level keeps no signs, none are asked for.
        """
        if self._settings.keeps_signs:
            self._write_signs(self.folder / f"step{step}", signs)
        path = self.folder / f"grad_summary_{step}.csv"
        if step <= self._last and path.is_file():
            with path.open("ab") as file:
                file.write(_csv_lines(map(_cells, rows)))
            return
        with _replaced(path) as file:
            file.write(_csv_lines([_header(self._settings), *map(_cells, rows)], "utf-8-sig"))
        self._last = max(self._last, step)

    def _write_signs(self, folder: Path, signs: Iterable[tuple[str, SignMap]]) -> None:
        make_folder(folder)
        for parameter, map_ in signs:
            array = sign_maps.packed(map_) if self._settings.sign_format == "packed" else map_
            with _replaced(folder / sign_maps.file_name(parameter)) as file:
                write_npy(file, array)


def interval_shares(up_to: Sequence[int], zeros: int, total: int) -> tuple[float, ...]:
    """Return the fractions of elements in each interval between bounds, and of those that are 0.

    ``up_to`` is how many elements are not above each bound, ``total`` how many there are.
    """
    ends = [*up_to, total] if up_to else []
    inside = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    return tuple(count / total if total else 0.0 for count in (*inside, zeros))


def _header(settings: ProbeSettings) -> list[str]:
    checksum = ["MD5"] if settings.keeps_checksums else []
    shares = _intervals(settings.bounds) if settings.counts_intervals else []
    return ["param_name", *checksum, *shares, "max", "min", "norm", "shape"]


def _intervals(bounds: Sequence[int | float]) -> list[str]:
    if not bounds:
        return ["=0"]
    inner = [f"({left}, {right}]" for left, right in pairwise(bounds)]
    return [f"(-inf, {bounds[0]}]", *inner, f"({bounds[-1]}, inf)", "=0"]


def _cells(row: GradientRow) -> list[object]:
    checksum = [] if row.md5 is None else [row.md5]
    return [row.parameter, *checksum, *row.shares, row.max, row.min, row.norm, list(row.shape)]


def _csv_lines(rows: Iterable[Sequence[object]], encoding: str = "utf-8") -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    # A name may hold half of a surrogate pair, which no encoding of text has.
    return text.getvalue().encode(encoding, "backslashreplace")


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` once it is whole."""
    part = path.parent / ".part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb") as file:  # noqa: PTH123
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
