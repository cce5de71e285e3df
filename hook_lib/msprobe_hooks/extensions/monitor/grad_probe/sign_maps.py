"""Sign maps of gradients: files of a probed rank, and two runs compared by them, as ``GradComparator`` does.

msprobe writes them as an array of bool, one byte an element. A packed map takes an eighth of that: one record with the
fields ``shape`` (int64) and ``bits`` (uint8, what ``numpy.packbits`` makes of the map). Both are plain ``.npy`` files:

    record = numpy.load("weight.npy")
    signs = numpy.unpackbits(record["bits"], count=record["shape"].prod()).reshape(record["shape"]).astype(bool)

The package exports it, so that numpy is imported where runs are compared and not here.
"""

from __future__ import annotations

import csv
import logging
import math
import re
from dataclasses import dataclass
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.messages import counted, shown
from msprobe_hooks.regular_files import open_regular

SignMap: TypeAlias = NDArray[np.bool_]

_SUMMARY, _STEP, _RANK = (
    re.compile(r"grad_summary_([0-9]+)\.csv"),
    re.compile(r"step([0-9]+)"),
    re.compile(r"rank([0-9]+)"),
)

_log = logging.getLogger("msprobe_hooks")

_PICTURES = "similarities_picture"


def file_name(parameter: str) -> str:
    """Return the name of a parameter's file, which lies in its folder whatever the parameter is called."""
    return f"{as_file_name(parameter)}.npy"


def as_file_name(parameter: str) -> str:
    """Return a parameter's name without what would lead into another folder or end the name."""
    return parameter.replace("/", "%2F").replace("\0", "%00")


def packed(signs: SignMap) -> NDArray[Any]:
    """Return the one record of a packed map."""
    bits = np.packbits(signs)
    record = np.zeros((), dtype=[("shape", "<i8", (signs.ndim,)), ("bits", "u1", (bits.size,))])
    record["shape"], record["bits"] = signs.shape, bits
    return record


def read(path: Path) -> SignMap:
    """Return the map in a file of either kind. Raises MonitorError where there is none."""
    try:
        with open_regular(path) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:
        # Bytes that are not an array make numpy's reader raise almost anything.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MonitorError(f"{path}: not a readable sign map: {reason}; copy or record it again") from None
    if array.dtype.names == ("shape", "bits"):
        return _unpacked(path, array)
    if array.dtype != np.bool_:
        raise MonitorError(f"{path}: holds {array.dtype}, not a sign map, which is bool or packed; record it again")
    return array


def _unpacked(path: Path, record: NDArray[Any]) -> SignMap:
    shape = [int(size) for size in record["shape"].ravel()] if record.shape == () else [-1]
    bits, count = record["bits"], math.prod(shape)
    if min(shape, default=0) < 0 or bits.dtype != np.uint8 or bits.shape != (-(-count // 8),):
        raise MonitorError(f"{path}: its shape does not match its bits; record it again")
    return np.unpackbits(bits, count=count).reshape(shape).view(np.bool_)


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
        return read(self.folder / f"step{step}" / file_name(parameter))


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


@dataclass(frozen=True, slots=True, eq=False)
class SignSimilarity:
    """The sign similarities of one rank of two runs, at the steps that both have.

    ``shares`` is float64 of shape (parameters, steps): the number of elements whose sign maps are equal over the number
    of elements, 0 for a gradient without elements, as msprobe defines it; NaN where neither run had a gradient.
    ``summary``, of shape (steps,), is the same over all elements of a step.
    """

    steps: tuple[int, ...]
    parameters: tuple[str, ...]
    shares: NDArray[np.float64]
    summary: NDArray[np.float64]


def sign_similarity(run_a: str | Path, run_b: str | Path) -> SignSimilarity:
    """Compare the sign maps in the folders of one rank of two runs (``<dump_path>/rank<N>``).

    Parameters come in the order of the first run. Raises MonitorError where there is nothing to compare: no step in
    common, a gradient that only one run has, shapes that differ, files that are not sign maps.
    """
    a, b = open_rank(run_a), open_rank(run_b)
    steps = _common_steps(a, b)
    shares: dict[str, dict[int, float]] = {}
    summary = []
    for step in steps:
        counts = {name: _equal(a, b, step, name) for name in _common_parameters(a, b, step)}
        for name, (equal, total) in counts.items():
            shares.setdefault(name, {})[step] = _share(equal, total)
        summary.append(_share(*(sum(column) for column in zip(*counts.values(), strict=True))) if counts else math.nan)
    table = np.array([[of.get(step, math.nan) for step in steps] for of in shares.values()], dtype=np.float64)
    return SignSimilarity(steps, tuple(shares), table.reshape(len(shares), len(steps)), np.array(summary))


def _common_steps(a: ProbedRank, b: ProbedRank) -> tuple[int, ...]:
    for rank in (a, b):
        if rank.cut:
            _log.warning("%s: incomplete steps left out, as they have no summary: %s", rank.folder, rank.cut)
    steps = tuple(sorted({*a.steps} & {*b.steps}))
    if not steps:
        have = "; ".join(f"{rank.folder} has {_range(rank.steps)}" for rank in (a, b))
        raise MonitorError(f"no step is in both runs: {have}; record them with the same configuration")
    alone = len(a.steps) + len(b.steps) - 2 * len(steps)
    if alone:
        _log.warning("%s left out, as in only one of %s and %s", counted(alone, "step"), a.folder, b.folder)
    return steps


def _range(steps: tuple[int, ...]) -> str:
    return f"{counted(len(steps), 'step')} from {steps[0]} to {steps[-1]}" if steps else "no complete step"


def _common_parameters(a: ProbedRank, b: ProbedRank, step: int) -> list[str]:
    names = a.parameters(step)
    lonely = {*names} ^ {*b.parameters(step)}
    if lonely:
        one = min(lonely)
        has, lacks = (a, b) if one in names else (b, a)
        raise MonitorError(
            f"{lacks.folder}: has no gradient of {one} at step {step}, but {has.folder} has; "
            "record both runs with the same model and configuration"
        )
    return names


def _equal(a: ProbedRank, b: ProbedRank, step: int, parameter: str) -> tuple[int, int]:
    ours, theirs = a.signs(step, parameter), b.signs(step, parameter)
    if ours.shape != theirs.shape:
        raise MonitorError(
            f"{parameter} at step {step}: shape {ours.shape} in {a.folder}, {theirs.shape} in {b.folder}; "
            "record both runs with the same model and parallel layout"
        )
    return int(np.count_nonzero(ours == theirs)), ours.size


def _share(equal: int, total: int) -> float:
    return equal / total if total else 0.0


class GradComparator:
    """Writes how much the gradients of two runs agree in sign, step by step."""

    @classmethod
    def compare_distributed(cls, path1: str | Path, path2: str | Path, output_dir: str | Path) -> None:
        """Compare each rank that two runs have in common, into a folder ``rank<N>`` each.

        Args:
            path1: The ``dump_path`` of a run with task ``grad_probe``.
            path2: The ``dump_path`` of the other run.
            output_dir: The folder of the results.

        Raises:
            MonitorError: The runs cannot be compared; the text names the file and what to do.
        """
        first, second = rank_folders(path1), rank_folders(path2)
        ranks = sorted(first.keys() & second.keys())
        if not ranks:
            raise MonitorError(
                f"no rank is in both runs: {path1} has {sorted(first)}, {path2} has {sorted(second)}; "
                "pass the dump_path of two runs of the same layout"
            )
        alone = sorted(first.keys() ^ second.keys())
        if alone:
            _log.warning("ranks left out, as only one of %s and %s has them: %s", path1, path2, alone)
        for rank in ranks:
            cls.compare(first[rank], second[rank], Path(output_dir, f"rank{rank}"))

    @classmethod
    def compare(cls, path1: str | Path, path2: str | Path, output_dir: str | Path) -> None:
        """Compare the folders of one rank: write ``similarities.csv`` and a picture for each parameter.

        Pictures are left out where matplotlib is not installed.

        Args:
            path1: The folder of a rank of a run with task ``grad_probe``.
            path2: The folder of a rank of the other run.
            output_dir: The folder of the results.

        Raises:
            MonitorError: The ranks cannot be compared; the text names the file and what to do.
        """
        found, folder = sign_similarity(path1, path2), Path(output_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_table(found, folder / "similarities.csv")
            if find_spec("matplotlib") is None:
                _log.warning(
                    "%s: not written, as matplotlib is not installed; pip install pytest-msprobe[pictures]",
                    folder / _PICTURES,
                )
            else:
                _draw(found, folder / _PICTURES)
        except OSError as error:
            raise MonitorError(f"{folder}: cannot be written: {error}; pass another folder") from None


def _series(found: SignSimilarity) -> dict[str, list[float]]:
    rows = dict(zip(found.parameters, found.shares.tolist(), strict=True))
    return {**rows, "summary": found.summary.tolist()}


def _write_table(found: SignSimilarity, path: Path) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", *found.steps])
        rows.writerows(
            [name, *("" if math.isnan(share) else share for share in row)] for name, row in _series(found).items()
        )


def _draw(found: SignSimilarity, folder: Path) -> None:
    from matplotlib.figure import Figure

    folder.mkdir(exist_ok=True)
    for name, shares in _series(found).items():
        figure = Figure()
        axes = figure.add_subplot(xlabel="steps", ylabel="similarities", title=f"{name}_similarities")
        axes.plot(found.steps, shares, marker="." if len(found.steps) == 1 else None)
        figure.savefig(folder / f"{as_file_name(name)}_similarities.png")
