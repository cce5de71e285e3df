"""Differences of two parameters: their kind, by the digests of rows and columns, and the distance in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe_hooks.extensions.checkpoint.weights_file import Digest, Numbers
from msprobe_hooks.messages import listed
from msprobe_standards import chunks
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import MatrixDigest, Parameter, Piece
from pytest_msprobe.extensions.checkpoint.same_shape import Others

#: A parameter of an earlier step, and in words which.
Earlier: TypeAlias = tuple[str, Parameter]

# So many runs of rows are named.
_MOST_RUNS = 4

# Two elements a byte, of which torch (2.8 and later) converts none.
_FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
# By their bits: sign, two of exponent, one of mantissa (OCP Microscaling Formats 1.0, 5.3.3).
_FLOAT4_VALUES = torch.tensor([sign * x for sign in (1, -1) for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of weights: ``kind`` in a word, ``words`` for a reason, and rows and columns, as runs of numbers.

    ``kind`` is ``equal``, ``rounded`` (equal in bfloat16), ``transposed``, ``earlier``, ``swapped``, ``partly``,
    ``reordered``, ``shape`` or ``all``.
    """

    kind: str
    words: str
    rows: tuple[tuple[int, int], ...] = ()
    columns: tuple[tuple[int, int], ...] = ()


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
    return Difference("swapped", f"equal to golden's {listed(names, 1)}", ((0, len(ours.own.rows)),))


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
    rows = _runs(differing)
    columns: tuple[tuple[int, int], ...] = ()
    across = None
    if own.columns is not None and other.columns is not None:
        across = own.columns != other.columns
        columns = _runs(across)
    stale, is_whole = _earlier(target, own, differing, across, earlier)
    if is_whole:
        return Difference("earlier", f"not synchronised{stale}", rows, columns)
    height, unit = len(differing), "rows" if len(target.shape) > 1 else "elements"
    count = int(differing.sum())
    width = len(other.columns) if other.columns is not None else 0
    count_of_columns = sum(stop - start for start, stop in columns)
    if not stale and np.array_equal(np.sort(own.rows), np.sort(other.rows)):
        words = f"{unit} are golden's in another order"
        words += f" ({count} of {height}: {_in_words(rows)})" if count < height else ""
        return Difference("reordered", words, rows, columns)
    if count < height:
        where = _where(target.pieces, rows, None) or _where(golden.pieces, rows, None)
        words = f"{count} of {height} {unit} differ ({_in_words(rows)}){where}"
        return Difference("earlier" if stale else "partly", f"{words}{stale}", rows, columns)
    if 0 < count_of_columns < width:
        where = _where(target.pieces, None, columns) or _where(golden.pieces, None, columns)
        words = f"{count_of_columns} of {width} columns differ ({_in_words(columns)}){where}"
        return Difference("earlier" if stale else "partly", f"{words}{stale}", rows, columns)
    if stale:
        return Difference("earlier", f"all {height} {unit} differ{stale}", rows, columns)
    pairs = (own.columns, other.columns)
    if pairs[0] is not None and pairs[1] is not None and np.array_equal(np.sort(pairs[0]), np.sort(pairs[1])):
        return Difference("reordered", "columns are golden's in another order", rows, columns)
    return Difference("all", f"all {height} {unit} differ", rows, columns)


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


def _runs(flags: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the runs of true ones, each as its first and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return tuple((int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True))


def _in_words(runs: Sequence[tuple[int, int]]) -> str:
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


@dataclass(frozen=True, slots=True)
class Distance:
    """``cosine`` is 1 where both are zero, None where one is; ``relative`` is the norm of the difference by golden's.

    ``is_equal`` is of bits; a NaN in one alone makes all numbers infinite.
    """

    is_equal: bool
    max_abs: float
    max_relative: float
    l2: float
    relative: float
    cosine: float | None


def distance(target: Tensor, golden: Tensor) -> Distance:
    """Measure two plain tensors of one shape, of any dtypes."""
    ours, theirs = (tensor.detach().resolve_conj().resolve_neg() for tensor in (target, golden))
    if have_equal_bits(ours, theirs):
        return Distance(True, 0.0, 0.0, 0.0, 0.0, 1.0)
    l2 = target_norm = golden_norm = product = max_abs = max_relative = 0.0
    for t, g in _parts(ours, theirs):
        difference = _difference(t, g)
        t, g = _wide(t), _wide(g)
        max_abs = max(max_abs, float(difference.max()))
        ratio = torch.where(difference == 0, 0.0, difference / g.abs())
        max_relative = max(max_relative, float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()))
        t, g = t.nan_to_num(0.0, 0.0, 0.0), g.nan_to_num(0.0, 0.0, 0.0)
        product += float(t @ g)
        l2, target_norm, golden_norm = map(
            math.hypot, (l2, target_norm, golden_norm), (_norm(difference), _norm(t), _norm(g))
        )
    relative = 0.0 if not max_abs else l2 / golden_norm if 0 < golden_norm < math.inf else math.inf
    return Distance(False, max_abs, max_relative, l2, relative, _cosine(target_norm, product, golden_norm))


def have_equal_bits(target: Tensor, golden: Tensor) -> bool:
    """Return whether two plain tensors agree in shape, dtype and each bit."""
    if target.shape != golden.shape or target.dtype != golden.dtype:
        return False
    return all(torch.equal(t.view(torch.uint8), g.view(torch.uint8)) for t, g in _parts(target, golden))


def _parts(target: Tensor, golden: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if target.numel():
        yield from ((t.contiguous(), g.contiguous()) for _, t, g in chunks(target, golden))


def _difference(t: Tensor, g: Tensor) -> Tensor:
    """Return how far elements are apart; infinities and NaN at the same places are equal."""
    ours, theirs = _wide(t), _wide(g)
    apart = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, ours - theirs).abs()
    apart = apart.nan_to_num(nan=math.inf, posinf=math.inf)
    if t.dtype == g.dtype and t.dtype in (torch.int64, torch.uint64):
        # float64 does not hold all of 64 bits, and integers that differ are at least 1 apart.
        apart = torch.where(t == g, 0.0, apart.clamp(min=1.0))
    return apart


def _norm(part: Tensor) -> float:
    """Return the norm, also where squares of float64 overflow or vanish."""
    largest = float(part.abs().max())
    return largest * float(torch.linalg.vector_norm(part / largest)) if 0 < largest < math.inf else largest


def can_be_measured(target: Tensor, golden: Tensor) -> bool:
    """Return whether the elements of two tensors are numbers that torch knows, as many on both sides."""
    packed = [tensor.dtype is _FLOAT4 for tensor in (target, golden)]
    return all(packed) or not (any(packed) or any(map(_is_opaque, (target, golden))))


def _is_opaque(tensor: Tensor) -> bool:
    """Return whether torch has a dtype, such as ``uint4``, for the name alone."""
    try:
        tensor.new_zeros(1, dtype=tensor.dtype).double()
    except (NotImplementedError, RuntimeError):
        return True
    return False


def _wide(part: Tensor) -> Tensor:
    if part.dtype is _FLOAT4:
        packed = part.view(torch.uint8)
        return _FLOAT4_VALUES[torch.stack([packed & 15, packed >> 4], -1).reshape(-1).long()]
    return torch.view_as_real(part.to(torch.complex128)).reshape(-1) if part.is_complex() else part.double()


def _cosine(target_norm: float, product: float, golden_norm: float) -> float | None:
    if not target_norm or not golden_norm:
        return 1.0 if target_norm == golden_norm else None
    return max(-1.0, min(1.0, product / target_norm / golden_norm))
