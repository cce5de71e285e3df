"""Contents of a tensor and differences of two, part by part: memory does not grow with the tensor."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from msprobe_standards import chunks
from msprobe_standards.dtypes import real_dtype
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.extensions.show.open_named import Named
from pytest_msprobe.extensions.show.writers import Contents, DifferingElement, Histogram, ShownTensor
from pytest_msprobe.modes.compare.measure.tensor_pairs import coarser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BINS = 20


def look(named: Named, count: int) -> ShownTensor:
    """Return what a tensor holds, with its first ``count`` elements."""
    value, tensor = named.value, named.tensor
    problem = named.problem
    if tensor is not None and not is_plain(tensor):
        problem = problem or f"{tensor.layout} tensor, whose elements are not shown"
    return ShownTensor(
        named.name,
        value.dtype.removeprefix("torch."),
        value.shape,
        None if tensor is None or problem else contents_of(tensor, count),
        value.statistics if value.is_tensor else None,
        value.text,
        problem,
    )


def contents_of(tensor: torch.Tensor, count: int) -> Contents:
    """Return the statistics, the first ``count`` elements and the histogram of a plain CPU tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    greatest, least, total, squares = -math.inf, math.inf, 0.0, 0.0
    finite_count = zeros = nan = inf = negative_inf = 0
    for part in _parts(tensor):
        finite = part[np.isfinite(part)]
        if finite.size < part.size:
            nan += int(np.isnan(part).sum())
            inf += int((part == math.inf).sum())
            negative_inf += int((part == -math.inf).sum())
        if finite.size:
            greatest, least = max(greatest, float(finite.max())), min(least, float(finite.min()))
            total += float(finite.sum())
            with np.errstate(over="ignore"):
                squares += float(np.dot(finite, finite))
            zeros += finite.size - int(np.count_nonzero(finite))
            finite_count += finite.size
    if not finite_count:
        return Contents(None, None, None, None, zeros, nan, inf, negative_inf, _first(tensor, count), None)
    return Contents(
        _exact(tensor, greatest, "max"),
        _exact(tensor, least, "min"),
        total / finite_count,
        math.sqrt(squares),
        zeros,
        nan,
        inf,
        negative_inf,
        _first(tensor, count),
        _histogram(tensor, least, greatest) if tensor.numel() > _BINS else None,
    )


def _exact(tensor: torch.Tensor, extreme: float, which: str) -> float | int:
    """Return an extreme of integers as it is: float64 does not hold all of 64 bits."""
    if tensor.is_floating_point() or tensor.is_complex():
        return extreme
    if tensor.dtype.itemsize < 8:
        return int(extreme)
    flat = tensor.reshape(-1).numpy()
    return int(flat.max() if which == "max" else flat.min())


def _histogram(tensor: torch.Tensor, least: float, greatest: float) -> Histogram:
    counts = np.zeros(_BINS, dtype=np.int64)
    # Halves do not overflow where the difference does; of subnormal numbers they would be lost.
    scale = 1.0 if math.isfinite(greatest - least) else 0.5
    span = greatest * scale - least * scale
    for part in _parts(tensor):
        finite = part[np.isfinite(part)]
        shares = (finite * scale - least * scale) / span if span else np.zeros(finite.size)
        places = (shares * _BINS).astype(np.int64)
        counts += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)
    return Histogram(least, greatest, tuple(counts.tolist()))


def _parts(tensor: torch.Tensor) -> Iterator[Floats]:
    for _, part, _ in chunks(tensor, tensor):
        yield (part.abs() if part.is_complex() else part).double().reshape(-1).numpy()


def _first(tensor: torch.Tensor, count: int) -> tuple[str, ...]:
    return tuple(element_text(element) for element in _beginning(tensor, count))


def _beginning(tensor: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    for flat in range(min(count, tensor.numel())):
        yield tensor[np.unravel_index(flat, tuple(tensor.shape))] if tensor.dim() else tensor


def element_text(element: torch.Tensor) -> str:
    """Return one element as text."""
    value = element.item()
    return f"{value:.9g}" if isinstance(value, (float, complex)) else str(value)


# The defaults of torch.testing.assert_close by dtype: relative and absolute.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


class Tolerance(NamedTuple):
    """Allowed distance of an element from its twin: ``atol + rtol * |twin|``."""

    rtol: float
    atol: float


def usual_tolerance(first: torch.dtype, second: torch.dtype) -> Tolerance:
    """Return that of ``torch.testing.assert_close`` for the coarser dtype; none where one of them is no float."""
    if not all(dtype.is_floating_point or dtype.is_complex for dtype in (first, second)):
        return Tolerance(0.0, 0.0)
    return Tolerance(*_TOLERANCES.get(real_dtype(coarser(real_dtype(first), real_dtype(second))), (0.0, 0.0)))


@dataclass(slots=True)
class Differences:
    """Differences of two tensors so far: counts, and the first and largest ``wanted`` differing elements."""

    wanted: int
    tolerance: Tolerance
    equal: int = 0
    beyond: int = 0
    _first: list[tuple[int, float]] = field(default_factory=list)
    # A heap of errors and places, the least error on top; of equal errors the first place stays.
    _largest: list[tuple[float, int]] = field(default_factory=list)

    def over(self, first: torch.Tensor, second: torch.Tensor) -> None:
        """Go over two plain CPU tensors of one shape."""
        first, second = (x.detach().resolve_conj().resolve_neg() for x in (first, second))
        with np.errstate(all="ignore"):
            for offset, a, b in chunks(first, second):
                self._add(offset, _comparable(a.reshape(-1)), _comparable(b.reshape(-1)))

    def _add(self, offset: int, a: torch.Tensor, b: torch.Tensor) -> None:
        same = a == b
        if bool(same.all()):
            self.equal += a.numel()
            return
        if a.is_floating_point() or a.is_complex():
            same |= a.isnan() & b.isnan()
        places = np.flatnonzero(~same.numpy())
        self.equal += a.numel() - places.size
        if not places.size:
            return
        left, right = a.numpy()[places], b.numpy()[places]
        errors = _distance(left, right)
        limit = self.tolerance.atol + self.tolerance.rtol * np.abs(right)
        self.beyond += int(np.count_nonzero((errors > limit) | np.isinf(errors)))
        room = self.wanted - len(self._first)
        self._first += [(offset + int(places[i]), float(errors[i])) for i in range(min(room, places.size))]
        least = self._largest[0][0] if self.wanted and len(self._largest) == self.wanted else -1.0
        for i in _candidates(errors, self.wanted, least):
            entry = (float(errors[i]), -(offset + int(places[i])))
            push = heapq.heappush if len(self._largest) < self.wanted else heapq.heappushpop
            push(self._largest, entry)

    def elements(
        self, first: torch.Tensor, second: torch.Tensor
    ) -> tuple[tuple[DifferingElement, ...], tuple[DifferingElement, ...]]:
        """Return the first and the largest differing elements of the two tensors that were gone over."""
        shape = tuple(first.shape)

        def element(place: int, error: float) -> DifferingElement:
            index = tuple(int(part) for part in np.unravel_index(place, shape)) if shape else ()
            return DifferingElement(index, element_text(first[index]), element_text(second[index]), error)

        largest = sorted(self._largest, key=lambda entry: (-entry[0], -entry[1]))
        return tuple(element(*each) for each in self._first), tuple(element(-place, error) for error, place in largest)


def _comparable(part: torch.Tensor) -> torch.Tensor:
    """Return a part in a dtype that numpy has, too."""
    if part.dtype is torch.bfloat16 or (part.is_floating_point() and part.dtype.itemsize == 1):
        return part.float()
    return part.to(torch.complex64) if part.dtype is torch.complex32 else part


def _distance(left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return how far elements that differ are apart; inf where one of them is NaN or inf."""
    if left.dtype.kind in "iub" and right.dtype.kind in "iub":
        # Python integers: what is between two of 64 bits fits neither of them.
        gaps = left.astype(object) - right.astype(object) if max(left.itemsize, right.itemsize) == 8 else None
        return np.abs(_wide(left) - _wide(right)) if gaps is None else np.abs(gaps).astype(np.float64)
    errors: NDArray[np.float64] = np.abs(_wide(left) - _wide(right))
    errors[np.isnan(errors)] = math.inf
    return errors


def _wide(array: NDArray[np.generic]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return wide


def _candidates(errors: NDArray[np.float64], count: int, least: float) -> NDArray[np.intp]:
    """Return the places of the errors that may be among the ``count`` largest of all, in order."""
    places = np.flatnonzero(errors > least) if count else np.empty(0, np.intp)
    if places.size > count:
        kept = np.argpartition(-errors[places], count - 1)
        bound = errors[places][kept[count - 1]]
        places = places[errors[places] >= bound]
        above = places[errors[places] > bound]
        places = np.sort(np.concatenate([above, places[errors[places] == bound][: count - above.size]]))
    return places
