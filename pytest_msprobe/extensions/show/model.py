"""What was found, as data: text, page and JSON are made of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_msprobe.modes.compare.rows import Outcome
from pytest_msprobe.results.error_map import ErrorMap


class Histogram(msgspec.Struct, frozen=True):
    """How the finite elements lie between the least and the greatest: ``counts`` of bins of one width."""

    least: float
    greatest: float
    counts: tuple[int, ...]


class Contents(msgspec.Struct, frozen=True):
    """The elements of one tensor; max, min, mean and norm are of the finite ones, of complex numbers the magnitudes.

    ``first`` are the first elements as text. A histogram of fewer elements than it has bins is none.
    """

    max: float | int | None
    min: float | int | None
    mean: float | None
    norm: float | None
    zeros: int
    nan: int
    inf: int
    negative_inf: int
    first: tuple[str, ...]
    histogram: Histogram | None


class ShownTensor(msgspec.Struct, frozen=True):
    """One tensor by its name within the file; ``problem`` says why its elements are not shown.

    ``recorded`` are max, min, mean and norm as a dump has them, ``text`` is that of a value which is no tensor.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    contents: Contents | None = None
    recorded: tuple[float | None, ...] | None = None
    text: str = ""
    problem: str = ""


class DifferingElement(msgspec.Struct, frozen=True):
    """One element that differs: where, both values as text, and the absolute error."""

    index: tuple[int, ...]
    first: str
    second: str
    error: float


class Difference(msgspec.Struct, frozen=True):
    """Two tensors of one shape, element by element; the second is what the first is held against.

    ``beyond`` counts the elements whose error is above ``atol + rtol * |second|``. ``map`` shows where, of tensors
    that fail. ``finite_metrics`` are of the elements that are finite on both sides, where NaN or inf on one side alone
    makes errors infinite; None where it does not.
    """

    count: int
    equal: int
    beyond: int
    rtol: float
    atol: float
    metrics: dict[str, float]
    first: tuple[DifferingElement, ...]
    largest: tuple[DifferingElement, ...]
    map: ErrorMap | None = None
    finite_metrics: dict[str, float] | None = None

    @property
    def equal_share(self) -> float:
        """The share of equal elements; 1 where there is none."""
        return self.equal / self.count if self.count else 1.0


class Pair(msgspec.Struct, frozen=True):
    """Two tensors of one name, or one that the other side lacks."""

    name: str
    first: ShownTensor | None
    second: ShownTensor | None
    outcome: Outcome
    reason: str = ""
    difference: Difference | None = None


class Shown(msgspec.Struct, frozen=True):
    """All that one command shows: of one file its tensors, of two their pairs; ``judged`` says by what."""

    files: tuple[str, ...]
    tensors: tuple[ShownTensor, ...] = ()
    pairs: tuple[Pair, ...] = ()
    judged: str = ""
    version: Literal[1] = 1

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the pairs."""
        found = {pair.outcome for pair in self.pairs}
        return next((outcome for outcome in _WORST_FIRST if outcome in found), "pass")


_WORST_FIRST: tuple[Outcome, ...] = ("fail", "warn", "pass", "skip")
