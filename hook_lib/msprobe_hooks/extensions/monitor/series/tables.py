"""What files of series hold, whatever their format: numbers of tensors at steps."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError


class Row(msgspec.Struct, frozen=True, gc=False):
    """The statistics of one tensor at one step.

    ``task`` is one of `layout.TASKS` or another word, ``name`` is ``<module>.input``, ``<module>.output`` or a
    parameter's name, and ``values`` are in the order of the writer's statistics. ``distribution`` is how many elements
    are in each of the bins of `heat_maps`, of what a picture is made in events.
    """

    task: str
    vpp_stage: int
    name: str
    step: int
    micro_step: int | None
    values: tuple[float, ...]
    distribution: tuple[float, ...] = ()

    @property
    def watched(self) -> Watched:
        """What the statistics are of."""
        return Watched(self.task, self.vpp_stage, self.name, self.micro_step)


class Watched(NamedTuple):
    """What is watched, apart from its statistics: a tensor of a module's call, or of a parameter."""

    task: str
    vpp_stage: int
    name: str
    micro_step: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in the order in which they were written.

    ``watched`` are the tensors in the order of their first row, ``owners`` the index into them of each row, int32 of
    shape (rows,), ``steps`` int64 of shape (rows,), and ``values`` float64 of shape (statistics, rows), or (0, rows)
    where only the rest was asked for. ``groups`` are the first rows of the groups in which a file can be read.
    """

    watched: Sequence[Watched]
    owners: NDArray[np.int32]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    groups: NDArray[np.int64]


class CutFileError(MonitorError):
    """A file ends before it can be read; the text is a sentence of a run's notes."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path.name}: {problem} and is left out")


class Part(Protocol):
    """One file of series."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def written(self) -> int:
        """When it was written, in nanoseconds since the epoch."""

    @property
    def statistics(self) -> Sequence[str]:
        """What the rows of a table's values are."""

    @property
    def notes(self) -> Sequence[str]:
        """What of the file was left out, in sentences, once it was read."""

    def index(self) -> Table:
        """Return all rows without their values."""

    def read(self, wanted: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors with their values, looking only into these groups of rows."""
