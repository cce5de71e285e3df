"""The two dumps of a comparison, what they can be compared by, and what is done to their tensors on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msprobe_hooks.errors import DumpError

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.rows import DataMode, Row


Side = Literal["target", "golden"]

#: How the message of a row begins that is left out, or compared by its norm alone.
NOT_COMPARED = "not compared, as transformations change its statistics: "
BY_NORM = "compared by the norm alone, as transformations change its other statistics: "


# A search for overflow writes the tensors of what it finds.
_WITH_TENSORS = ("tensor", "overflow_check", "nan_check")


class TensorTransformations(Protocol):
    """Transformations of recorded tensors, by which values of one run are turned before they are compared."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that they read."""

    def header(self) -> str:
        """Return what the run's header says of them; empty for nothing."""

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share, besides the files, for one to go on with the other's journal."""

    def measured(self, row: Row, sides: ComparedSides, records: tuple[str, str], mode: DataMode) -> Row | None:
        """Return the measured row of a pair of tensors of which one is turned, None where neither is.

        ``records`` are those of the target and the golden call. Where files were recorded, these are read whatever
        ``mode`` the caller compares by.
        """

    def may_concern(self, side: Side, record: str) -> bool:
        """Return whether a value of a record may be turned."""

    def without_effect(self, targets: Iterable[Dump], goldens: Iterable[Dump]) -> list[str]:
        """Return, in words, those that turn no tensor of any dump of their side."""


@dataclass(frozen=True)
class ComparedSides:
    """Two dumps that are compared by ``mode``.

    ``metrics`` are the user's, measured of tensors besides the others. ``has_histograms`` asks for the spread of errors
    of tensors that are transformed; of others it is measured afterwards.
    """

    target: Dump
    golden: Dump
    mode: DataMode
    transformations: TensorTransformations | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    has_histograms: bool = False


def data_mode(target: Dump, golden: Dump) -> DataMode:
    """Return what two dumps can be compared by. Raises DumpError where they were recorded differently."""
    if target.task != golden.task:
        raise DumpError(
            f"{target.path}: task {target.task}, but {golden.path} has task {golden.task}; "
            "record both with the same task"
        )
    if target.task not in (*_WITH_TENSORS, "statistics", "structure"):
        raise DumpError(
            f"{target.path}: task {target.task} cannot be compared; record with task tensor, statistics or structure"
        )
    if target.level != golden.level:
        remedy = "record both at the same level"
        if "compiled" in (target.level, golden.level):
            remedy = "record the compiled run with golden_path, and compare it with that folder"
        raise DumpError(f"{target.path}: level {target.level}, but {golden.path} has level {golden.level}; {remedy}")
    if target.task == "structure":
        return "structure"
    if target.task in _WITH_TENSORS:
        return "tensor"
    target_is_summed, golden_is_summed = _has_checksums(target), _has_checksums(golden)
    if target_is_summed != golden_is_summed:
        plain, summed = (golden, target) if target_is_summed else (target, golden)
        raise DumpError(
            f"{summed.path}: recorded with checksums (summary_mode md5), {plain.path} without; record both the same way"
        )
    return "md5" if target_is_summed else "statistics"


def _has_checksums(dump: Dump) -> bool:
    return any(b'"md5"' in bytes(raw) for raw in dump.records.values())
