"""Shown tensors and differences as data, as text for a terminal and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from msprobe_hooks.messages import counted
from pytest_msprobe.modes.compare.rows import Outcome
from pytest_msprobe.reports.github import map_lines
from pytest_msprobe.reports.pages import write_page
from pytest_msprobe.reports.text import aligned, clipped, one_line
from pytest_msprobe.results.error_map import BINS, LEVELS, LIMIT_RANK, NOT_FINITE, ErrorMap
from pytest_msprobe.results.result import as_json


class Histogram(msgspec.Struct, frozen=True):
    """Distribution of the finite elements between the least and the greatest: ``counts`` of bins of one width."""

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
        outcomes = {pair.outcome for pair in self.pairs}
        return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), "pass")


_WORST_FIRST: tuple[Outcome, ...] = ("fail", "warn", "pass", "skip")


# More tensors than this are shown as a table, and one by one where they are named.
_SHOWN_IN_FULL = 4
_BAR = 40
_METRICS = (
    ("max_abs_err", "greatest absolute error"),
    ("rel_err_max", "greatest relative error"),
    ("max_ulp_error", "greatest error in units of the last place"),
    ("euclidean", "Euclidean distance"),
    ("scaled_error", "error as a fraction of the scale"),
    ("cosine_sim", "cosine"),
    ("rel_err_thousandth", "share with relative error below 0.001"),
    ("nonfinite_mismatch", "elements that are NaN or inf on one side only"),
)


def show_lines(shown: Shown) -> Iterator[str]:
    """Yield the lines of all that is shown; nothing in them moves a terminal's cursor."""
    for line in _pairs(shown) if len(shown.files) > 1 else _tensors(shown.files[0], shown.tensors):
        yield one_line(line)


def write_show_page(path: Path, shown: Shown) -> None:
    """Write the page. Names are data and never markup. Raises OSError where the disk refuses."""
    data = as_json(msgspec.to_builtins(shown))
    levels = {"finite": LEVELS, "limit": LIMIT_RANK, "notFinite": NOT_FINITE}
    data |= {"title": _answer(shown), "command": ["pytest-msprobe", "show", *shown.files, *_judging_words(shown)]}
    data |= {"metrics": dict(_METRICS)}
    write_page(path, __package__, data | {"levels": levels, "bins": BINS}, title="Tensors", parts=("errormap", "table"))


def _answer(shown: Shown) -> str:
    if len(shown.files) == 1:
        return counted(len(shown.tensors), "tensor")
    wrong = [pair for pair in shown.pairs if pair.outcome == "fail"]
    whole = counted(len(shown.pairs), "tensor")
    if not wrong:
        return (
            f"none of {whole} differs" if shown.outcome != "warn" else f"none of {whole} is wrong, some are warned of"
        )
    first = f", first {wrong[0].name}" if wrong[0].name else ""
    return f"{len(wrong)} of {whole} {'differs' if len(wrong) == 1 else 'differ'}{first}"


def _judging_words(shown: Shown) -> list[str]:
    """Return the options that judge two files as they were."""
    kind, _, name = shown.judged.partition(" ")
    return [f"--{kind}", name] if name and name != "default" else []


def _tensors(file: str, tensors: Sequence[ShownTensor]) -> Iterator[str]:
    if len(tensors) > _SHOWN_IN_FULL:
        yield f"{file}: {len(tensors)} values; {file}::NAME shows one in full"
        rows = [("", "dtype", "shape", "max", "min", "mean", "norm"), *(_table_row(tensor) for tensor in tensors)]
        yield from aligned(rows, range(3, 7))
        return
    if not tensors:
        yield f"{file}: no tensors"
    for tensor in tensors:
        yield f"{file}{f' {tensor.name}' if tensor.name else ''}: {_kind(tensor)}"
        yield from (f"  {line}" for line in _details(tensor))


def _table_row(tensor: ShownTensor) -> tuple[str, ...]:
    numbers = _numbers(tensor)
    kind = (tensor.dtype or tensor.text, str(list(tensor.shape)) if tensor.dtype else "")
    return (tensor.name, *kind, *(("",) * 4 if numbers is None else map(_number, numbers)))


def _numbers(tensor: ShownTensor) -> Sequence[float | int | None] | None:
    contents = tensor.contents
    return tensor.recorded if contents is None else (contents.max, contents.min, contents.mean, contents.norm)


def _kind(tensor: ShownTensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}" if tensor.dtype else tensor.text or "None"


def _details(tensor: ShownTensor, *, with_histogram: bool = True) -> Iterator[str]:
    if tensor.problem:
        yield tensor.problem
    numbers = _numbers(tensor)
    if numbers is not None and set(numbers) != {None}:
        words = "  ".join(
            f"{name} {_number(x)}" for name, x in zip(("max", "min", "mean", "norm"), numbers, strict=True)
        )
        yield f"{words}{'' if tensor.contents else '  (as recorded, without elements)'}"
    if tensor.contents is not None:
        yield from _elements(tensor.contents)
        if tensor.contents.histogram is not None and with_histogram:
            yield from _bars(tensor.contents.histogram)


def _elements(contents: Contents) -> Iterator[str]:
    counts = (("zero", contents.zeros), ("NaN", contents.nan), ("inf", contents.inf), ("-inf", contents.negative_inf))
    counted = ", ".join(f"{count} {word}" for word, count in counts if count)
    if counted:
        yield f"of its elements {counted}"
    if contents.first:
        yield f"first: {' '.join(contents.first)}"


def _bars(histogram: Histogram) -> Iterator[str]:
    most, bins = max(histogram.counts), len(histogram.counts)
    width = (histogram.greatest / 2 - histogram.least / 2) / bins * 2
    rows = [
        (f"{histogram.least + place * width:.4g}", str(count), "#" * -(-count * _BAR // most))
        for place, count in enumerate(histogram.counts)
        if width or count
    ]
    yield "histogram, from:"
    yield from aligned(rows, range(2))


def _pairs(shown: Shown) -> Iterator[str]:
    yield f"{shown.files[0]} against {shown.files[1]}, judged by {shown.judged}"
    pairs = shown.pairs
    if len(pairs) > _SHOWN_IN_FULL:
        yield from aligned([_TITLES, *map(_pair_row, pairs)], range(2, 5))
        pairs = tuple(pair for pair in pairs if pair.outcome == "fail")[:_SHOWN_IN_FULL]
    for pair in pairs:
        yield ""
        yield from _pair(pair)


_TITLES = ("", "verdict", "greatest error", "cosine", "equal")


def _pair_row(pair: Pair) -> tuple[str, ...]:
    difference = pair.difference
    if difference is None:
        return pair.name, pair.outcome, "", "", ""
    cosine = difference.metrics.get("cosine_sim")
    error = _number(difference.metrics.get("max_abs_err"))
    return pair.name, pair.outcome, error, "" if cosine is None else f"{cosine:.9g}", f"{difference.equal_share:.4%}"


def _pair(pair: Pair) -> Iterator[str]:
    name = f"{pair.name}: " if pair.name else ""
    yield f"{name}{pair.outcome}{f': {pair.reason}' if pair.reason else ''}"
    for place, tensor in (("first", pair.first), ("second", pair.second)):
        if tensor is not None:
            yield f"  {place}: {_kind(tensor)}"
            yield from (f"    {line}" for line in _details(tensor, with_histogram=pair.difference is None))
    if pair.difference is not None:
        yield from (f"  {line}" for line in _difference(pair.difference))


def _difference(difference: Difference) -> Iterator[str]:
    share = (
        f"{difference.equal_share:.6g}"
        if difference.equal in (0, difference.count)
        else f"{difference.equal_share:.6f}"
    )
    yield f"equal: {difference.equal} of {counted(difference.count, 'element')}, a share of {share}"
    if difference.equal == difference.count:
        return
    if difference.atol or difference.rtol:
        yield f"beyond {difference.atol:g} + {difference.rtol:g} * |second|: {counted(difference.beyond, 'element')}"
    rows = [(text, _metric(difference, name)) for name, text in _METRICS if name in difference.metrics]
    yield from aligned(rows, range(1, 2))
    yield from _listed("first differing elements:", difference.first)
    yield from _listed("largest differences:", difference.largest)
    if difference.map is not None:
        yield "error map:"
        yield from map_lines(difference.map)


def _metric(difference: Difference, name: str) -> str:
    """Return a metric, and what it is without NaN and inf where those make it infinite."""
    text, finite = f"{difference.metrics[name]:.9g}", difference.finite_metrics
    return (
        text
        if finite is None or math.isfinite(difference.metrics[name])
        else f"{text}; finite elements: {finite[name]:.9g}"
    )


def _listed(title: str, elements: Sequence[DifferingElement]) -> Iterator[str]:
    rows = [(str(list(x.index)), x.first, x.second, f"{x.error:.6g}") for x in elements]
    if rows:
        yield title
        yield from (f"  {line}" for line in aligned([("index", "first", "second", "error"), *rows], range(1, 4)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else clipped(str(value), 40)
