"""Differences of two parameters: their kind, by the digests of rows and columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.checkpoint.weights_file import Digest, Numbers
from msprobe_hooks.messages import listed
from pytest_msprobe.errors import CheckpointError, UserError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import MatrixDigest, Parameter, Piece

#: A parameter of an earlier step, and in words which.
Earlier: TypeAlias = tuple[str, Parameter]
#: Returns other golden parameters of a shape: the name of each, itself, and its digests.
Others: TypeAlias = Callable[[], Iterable[tuple[str, Parameter, MatrixDigest]]]

# So many runs of rows are named.
_MOST_RUNS = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of weights: ``kind`` in a word, ``words`` for a reason, and rows and columns, as runs of numbers.

    ``kind`` is ``equal``, ``rounded`` (equal in bfloat16), ``transposed``, ``earlier``, ``swapped``, ``partly``,
    ``reordered``, ``shape`` or ``all``; where there are values also ``twice`` (rounded twice), ``unit`` (a unit apart)
    or ``low_rank``. ``cause`` is what parameters have in common that differ in the same way, empty for ``words``.
    """

    kind: str
    words: str
    rows: tuple[tuple[int, int], ...] = ()
    columns: tuple[tuple[int, int], ...] = ()
    cause: str = ""


def difference(
    target: Parameter,
    golden: Parameter,
    earlier: Iterable[Earlier] = (),
    others: Others = tuple,
) -> Difference:
    """Compare two parameters by their digests. Raises CheckpointError where they cannot be read.

    ``earlier`` are the golden ones of other steps, read one after another until one is equal; ``others`` returns the
    golden ones of other names, of the same shape.
    """
    ours, theirs = target.digest(), golden.digest()
    if target.shape != golden.shape:
        return _of_shapes(target, golden, ours, theirs)
    own, other, is_rounded = _comparable(target, golden, ours, theirs)
    if own is None or other is None:
        return Difference("all", f"dtype {target.dtype}, golden {golden.dtype}: digests cannot be compared")
    differing = own.rows != other.rows
    if not differing.any():
        words = (
            f"equal when rounded to bfloat16: dtype {target.dtype}, golden {golden.dtype}" if is_rounded else "equal"
        )
        return Difference("rounded" if is_rounded else "equal", words)
    if len(target.shape) == 2 and target.shape[0] == target.shape[1] and _is_transposed(own, other):
        return Difference("transposed", "the target is golden's transpose")
    finding = _of_values(target, golden, (own, other), differing, earlier)
    return finding if finding.kind == "earlier" else _swapped(target, ours, others) or finding


def _swapped(target: Parameter, ours: MatrixDigest, others: Others) -> Difference | None:
    """Return that a target is a golden parameter of another name, None where it is none."""
    names = []
    for name, parameter, digests in others():
        own, other, _ = _comparable(target, parameter, ours, digests)
        if own is not None and other is not None and np.array_equal(own.rows, other.rows):
            names.append(name)
    if not names:
        return None
    # Of many, as of norms that are all 1, the first says enough.
    words = f"equal to golden's {listed(names, 1)}"
    return Difference("swapped", words, ((0, len(ours.own.rows)),), cause="equal to golden's weight of another name")


def _of_shapes(target: Parameter, golden: Parameter, ours: MatrixDigest, theirs: MatrixDigest) -> Difference:
    own, other, _ = _comparable(target, golden, ours, theirs)
    is_turned = len(target.shape) == 2 and target.shape == golden.shape[::-1]
    if is_turned and own is not None and other is not None and _is_transposed(own, other):
        return Difference("transposed", "the target is golden's transpose")
    return Difference("shape", "")


def _of_values(
    target: Parameter,
    golden: Parameter,
    pair: tuple[Digest, Digest],
    differing: NDArray[np.bool_],
    earlier: Iterable[Earlier],
) -> Difference:
    own, other = pair
    rows = runs_of(differing)
    columns: tuple[tuple[int, int], ...] = ()
    across = None
    if own.columns is not None and other.columns is not None:
        across = own.columns != other.columns
        columns = runs_of(across)
    stale, is_whole = _earlier(target, own, differing, across, earlier)
    if is_whole:
        return Difference("earlier", f"not synchronised{stale}", rows, columns)
    height, unit = len(differing), "rows" if len(target.shape) > 1 else "elements"
    count = int(differing.sum())
    width = len(other.columns) if other.columns is not None else 0
    count_of_columns = sum(stop - start for start, stop in columns)
    if not stale and np.array_equal(np.sort(own.rows), np.sort(other.rows)):
        words = f"{unit} are golden's in another order"
        words += f" ({count} of {height}: {in_words(rows)})" if count < height else ""
        return Difference("reordered", words, rows, columns, "rows are golden's in another order")
    if count < height:
        where = _where(target.pieces, rows, None) or _where(golden.pieces, rows, None)
        words = f"{count} of {height} {unit} differ ({in_words(rows)}){where}{stale}"
        return Difference("earlier" if stale else "partly", words, rows, columns, f"some {unit} differ{where}{stale}")
    if 0 < count_of_columns < width:
        where = _where(target.pieces, None, columns) or _where(golden.pieces, None, columns)
        words = f"{count_of_columns} of {width} columns differ ({in_words(columns)}){where}{stale}"
        return Difference("earlier" if stale else "partly", words, rows, columns, f"some columns differ{where}{stale}")
    if stale:
        return Difference("earlier", f"all {height} {unit} differ{stale}", rows, columns, f"all {unit} differ{stale}")
    pairs = (own.columns, other.columns)
    if pairs[0] is not None and pairs[1] is not None and np.array_equal(np.sort(pairs[0]), np.sort(pairs[1])):
        return Difference("reordered", "columns are golden's in another order", rows, columns)
    return Difference("all", f"all {height} {unit} differ", rows, columns, "all values differ")


def _earlier(
    target: Parameter,
    own: Digest,
    down: NDArray[np.bool_],
    across: NDArray[np.bool_] | None,
    earlier: Iterable[Earlier],
) -> tuple[str, bool]:
    """Return in words of which earlier step the rows or columns that differ are, empty where of none.

    The second value is whether the whole parameter is of that step.
    """
    for words, parameter in earlier:
        if parameter.shape != target.shape:
            continue
        try:
            digests = parameter.digest()
        except CheckpointError:
            continue
        candidates = (digests.own, digests.rounded) if parameter.dtype != target.dtype else (digests.own,)
        for candidate in candidates:
            if candidate is None:
                continue
            is_equal = np.array_equal(candidate.rows[down], own.rows[down])
            if not is_equal and across is not None and candidate.columns is not None and own.columns is not None:
                is_equal = np.array_equal(candidate.columns[across], own.columns[across])
            if is_equal:
                return f": still equal to {words}", np.array_equal(candidate.rows, own.rows)
    return "", False


def _comparable(
    target: Parameter, golden: Parameter, ours: MatrixDigest, theirs: MatrixDigest
) -> tuple[Digest | None, Digest | None, bool]:
    """Return the digests of both in one dtype, and whether they are of rounded values."""
    if target.dtype == golden.dtype:
        return ours.own, theirs.own, False
    in_bfloat16 = [
        digests.own if parameter.dtype == "bfloat16" else digests.rounded
        for parameter, digests in ((target, ours), (golden, theirs))
    ]
    return in_bfloat16[0], in_bfloat16[1], True


def _is_transposed(own: Digest, other: Digest) -> bool:
    def fits(rows: Numbers, columns: Numbers | None) -> bool | None:
        return None if columns is None else np.array_equal(rows, columns)

    fitting = [fits(own.rows, other.columns), fits(other.rows, own.columns)]
    return True in fitting and False not in fitting


def runs_of(flags: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the runs of true ones, each as its first and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return tuple((int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True))


def in_words(runs: Sequence[tuple[int, int]]) -> str:
    """Return the first runs in words, and how many more there are."""
    shown = [str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in runs[:_MOST_RUNS]]
    more = f" and {len(runs) - _MOST_RUNS} more" if len(runs) > _MOST_RUNS else ""
    return ", ".join(shown) + more


def _where(
    pieces: Sequence[Piece],
    rows: Sequence[tuple[int, int]] | None,
    columns: Sequence[tuple[int, int]] | None,
) -> str:
    """Return in words the pieces that hold all that differs, empty where that is each piece."""
    if len(pieces) < 2:
        return ""
    runs = rows if rows is not None else columns or ()
    extent: Callable[[Piece], range] = _rows if rows is not None else _columns
    touched = [piece for piece in pieces if any(_overlap(extent(piece), run) for run in runs)]
    if len(touched) == len(pieces):
        return ""
    return f", of {' and '.join(piece.words for piece in touched[:_MOST_RUNS])}"


def _rows(piece: Piece) -> range:
    return piece.rows


def _columns(piece: Piece) -> range:
    return piece.columns


def _overlap(extent: range, run: tuple[int, int]) -> bool:
    return extent.start < run[1] and run[0] < extent.stop


class SameShape:
    """The golden parameters by shape, to one of which a target's may be equal under another name.

    The digests of each are read once, when they are first asked for.
    """

    def __init__(self, golden: Mapping[str, Parameter]) -> None:
        self._golden = golden
        self._names: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, parameter in golden.items():
            if not parameter.fault:
                self._names[tuple(parameter.shape)].append(name)
        self._digests: dict[str, MatrixDigest | None] = {}

    def others(self, name: str) -> Iterator[tuple[str, Parameter, MatrixDigest]]:
        """Yield the other golden parameters of the shape of the one of this name; those that cannot be read are not."""
        own = self._golden.get(name)
        for other in self._names[tuple(own.shape)] if own is not None else ():
            digest = None if other == name else self._digest(other)
            if digest is not None:
                yield other, self._golden[other], digest

    def _digest(self, name: str) -> MatrixDigest | None:
        if name not in self._digests:
            try:
                self._digests[name] = self._golden[name].digest()
            except (UserError, RuntimeError, TypeError, ValueError):
                # Such as a sparse one, which has no rows.
                self._digests[name] = None
        return self._digests[name]
