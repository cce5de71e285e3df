"""The two dumps of a comparison, and what is done to their tensors on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.rows import DataMode, Row


Side = Literal["target", "golden"]

#: How the message of a row begins that is left out, or compared by its norm alone.
NOT_COMPARED = "not compared, as transformations change its statistics: "
BY_NORM = "compared by the norm alone, as transformations change its other statistics: "


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
