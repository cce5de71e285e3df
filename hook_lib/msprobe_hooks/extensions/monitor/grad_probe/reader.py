"""What a gradient probe wrote, ours or msprobe's: the steps of one rank, their parameters and sign maps."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.messages import shown
from msprobe_hooks.regular_files import open_regular

_SUMMARY, _STEP, _RANK = (
    re.compile(r"grad_summary_([0-9]+)\.csv"),
    re.compile(r"step([0-9]+)"),
    re.compile(r"rank([0-9]+)"),
)


@dataclass(frozen=True, slots=True)
class ProbedRank:
    """The folder of one rank. ``steps`` are those with sign maps and summary, ``cut`` those that lack the summary."""

    folder: Path
    steps: tuple[int, ...]
    cut: tuple[int, ...]

    def parameters(self, step: int) -> list[str]:
        """Return the names of the parameters that had a gradient, in their order. Raises MonitorError."""
        rows = summary_rows(self.folder / f"grad_summary_{step}.csv")
        return list(dict.fromkeys(row[0] for row in rows[1:]))

    def signs(self, step: int, parameter: str) -> SignMap:
        """Return the sign map of a parameter's gradient. Raises MonitorError."""
        return sign_maps.read(self.folder / f"step{step}" / sign_maps.file_name(parameter))


def summary_rows(path: Path) -> list[list[str]]:
    """Return the header of a summary and a row for each gradient, its parameter first. Raises MonitorError."""
    try:
        with TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise MonitorError(f"{path}: cannot be read: {error}; copy or record it again") from None
    # MindSpore's graph mode writes the column with a capital letter.
    if not rows or rows[0][0].lower() != "param_name":
        found = shown(rows[0][0]) if rows else "nothing"
        raise MonitorError(f"{path}: begins with {found}, not with the column param_name; record it again")
    return rows


def open_rank(folder: str | Path) -> ProbedRank:
    """Return what a probe wrote for one rank. Raises MonitorError where it left no sign maps there."""
    folder = Path(folder)
    summaries, maps = _numbered(folder, _SUMMARY), _numbered(folder, _STEP)
    if not summaries and not maps:
        within = next(iter(_numbered(folder, _RANK).values()), None)
        remedy = (
            f"pass the folder of a rank, such as {within}" if within else "pass the folder rank<N> of a probe's run"
        )
        raise MonitorError(f"{folder}: holds no grad_summary_<step>.csv; {remedy}")
    if not maps:
        raise MonitorError(f"{folder}: holds no sign maps; record it with grad_level L1 or L2")
    return ProbedRank(
        folder, tuple(sorted(summaries.keys() & maps.keys())), tuple(sorted(maps.keys() - summaries.keys()))
    )


def rank_folders(folder: str | Path) -> dict[int, Path]:
    """Return the folders of a run's ranks, in the order of their numbers. Raises MonitorError where there is none."""
    found = _numbered(Path(folder), _RANK)
    if not found:
        raise MonitorError(f"{folder}: holds no folder rank<N>; pass the dump_path of a run with task grad_probe")
    return found


def _numbered(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    try:
        found = {int(named[1]): path for path in folder.iterdir() if (named := pattern.fullmatch(path.name))}
    except (OSError, ValueError) as error:
        raise MonitorError(f"{folder}: cannot be read: {error}; pass the folder of a probe's run") from None
    return dict(sorted(found.items()))
