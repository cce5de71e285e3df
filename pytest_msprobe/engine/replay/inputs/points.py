"""Points at which kernels differ, put into drawn inputs: kinks, edges, halves, and equal values.

Random numbers hardly ever hit them. A point is put where it lies between the values that were drawn, so that the
recorded range stays as it is, and where it is exact in the tensor's dtype, so that golden sees the same number. What
torch defines there is listed in docs/standards-reference.md, with the sources. Points where it leaves the result open
are not put, and neither are ends of a domain: they are drawn where they are recorded extrema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments

#: Puts points into the drawn arguments of an operation, in place; raises one of `REFUSALS` for those of another form.
Points: TypeAlias = Callable[[DrawnArguments], None]

#: Which value of a lane is repeated: the greatest, ..., any, or any at the place behind it.
Which: TypeAlias = Literal["greatest", "least", "middle", "any", "next"]

# A format of 8 bits may have no second zero, and few operations are defined for one.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Choices: a point is at four places, as the gradient that arrives may be near zero at one; all points together take
# a quarter of a tensor at most; of a value of another tensor, which may lie beyond this one's range, sixteen are tried.
# One of eight slices may be zero.
_TIMES, _SHARE, _TRIED, _SLICES = 4, 4, 16, 8


class Argument(NamedTuple):
    """A point that an argument of the call gives: a number, or a tensor that broadcasts to the input.

    ``default`` is torch's, None where there is no point without the argument; ``sign`` is a factor of a number.
    """

    position: int
    name: str
    default: float | None = None
    sign: int = 1


def at(*points: float | Argument, of: int = 0, name: str = "input") -> Points:
    """Return what puts points into one argument."""

    def put(drawn: DrawnArguments) -> None:
        numbers = (_number(drawn, point) for point in points)
        _put(drawn, drawn.tensor(of, name, "self"), [number for number in numbers if number is not None])

    return put


def _number(drawn: DrawnArguments, point: float | Argument) -> float | tuple[torch.Tensor, float] | None:
    if not isinstance(point, Argument):
        return point
    value = drawn.get(point.position, point.name)
    if isinstance(value, torch.Tensor):
        return value, 0.0
    value = point.default if value is None else value
    return None if value is None else point.sign * float(value)


def apart(by: Argument) -> Points:
    """Return what makes elements of the input equal to the target, or a distance away on either side."""

    def put(drawn: DrawnArguments) -> None:
        target, distance = drawn.tensor(1, "target"), _number(drawn, by)
        if target is not None and isinstance(distance, float):
            _put(drawn, drawn.tensor(0, "input"), [(target, 0.0), (target, distance), (target, -distance)])

    return put


def ties(*which: Which, dim_at: int = 1, dim: int | None = -1) -> Points:
    """Return what makes values equal that are ordered or selected along a dimension; None is all of the input.

    Where the selection is between two tensors, elements of them become equal.
    """

    def put(drawn: DrawnArguments) -> None:
        values = drawn.tensor(0, "input", "self")
        if drawn.tensor(1, "other") is not None:
            at(Argument(1, "other"))(drawn)
        elif values is not None and values.dtype is not torch.bool and values.is_contiguous():
            for lane in _lanes(drawn, values, dim_at, dim):
                for position in which:
                    _tie(drawn, lane, position)

    return put


def _tie(drawn: DrawnArguments, lane: torch.Tensor, which: Which) -> None:
    """Write a value to other places of its lane; what is not finite neither moves nor goes."""
    count = len(lane)
    source = int(_POSITIONS[which](lane)) if which in _POSITIONS else drawn.places.randrange(count - 1)
    places = drawn.places.sample(range(count), min(_TIMES, count // _SHARE))
    places = [source, source + 1] if which == "next" else [source, *places]
    values = lane[places].tolist()
    if math.isfinite(values[0]):
        lane[[place for place, value in zip(places, values, strict=True) if math.isfinite(value)]] = values[0]


_POSITIONS: dict[Which, Callable[[torch.Tensor], torch.Tensor]] = {
    "greatest": torch.argmax,
    "least": torch.argmin,
    "middle": lambda lane: lane.median(dim=0).indices,
}


def among(values_at: int, ordered_at: int) -> Points:
    """Return what makes values equal to some of those among which a call looks for them, in the same row."""

    def put(drawn: DrawnArguments) -> None:
        sought, rows = drawn.tensor(values_at, "input"), drawn.tensor(ordered_at, "sorted_sequence", "boundaries")
        if sought is None or rows is None or not rows.numel() or drawn.kwargs.get("sorter") is not None:
            return
        columns = torch.randint(rows.shape[-1], sought.shape[-1:], generator=drawn.generator)
        _put(drawn, sought, [(rows[..., columns], 0.0)])

    return put


def zero_slices(drawn: DrawnArguments) -> None:
    """Set a slice to zero whose norm is taken, where zeros lie in the range; the gradient of that norm is zero."""
    values, order = drawn.tensor(0, "input", "self", "x", "A"), drawn.get(1, "p", "ord")
    if values is None or values.dtype not in _DTYPES or order not in (None, "fro", 1, 2, math.inf):
        return
    low, high = _range(values)
    # Along two dimensions it may be a norm of matrices.
    if low <= 0 <= high and np.size(drawn.get(2, "dim")) == 1:
        for lane in _lanes(drawn, values, 2, None, _SLICES):
            lane[lane.isfinite()] = 0


def powers(drawn: DrawnArguments) -> None:
    """Write zero to the power of zero, and zero where a number is the exponent and the gradient is finite."""
    base, exponent = drawn.tensor(0, "input", "self"), drawn.get(1, "exponent", "other")
    if isinstance(exponent, (int, float)) and (exponent == 0 or exponent >= 1):
        at(0.0)(drawn)
    elif base is not None and isinstance(exponent, torch.Tensor) and base.shape == exponent.shape:
        ranges = [_range(operand) for operand in (base, exponent) if operand.dtype in _DTYPES]
        if len(ranges) == 2 and all(low <= 0 <= high for low, high in ranges):
            state = drawn.places.getstate()
            for operand in (base, exponent):
                drawn.places.setstate(state)
                _put(drawn, operand, [0.0])


def _put(
    drawn: DrawnArguments, tensor: torch.Tensor | None, points: Sequence[float | tuple[torch.Tensor, float]]
) -> None:
    """Write points, each at a few places, into a tensor of floats that is large enough for them.

    A number, or an element of another tensor with a number added; the wider of the two tensors is written to.
    """
    if tensor is None or not points:
        return
    count = tensor.numel()
    numbers = [point for point in points if not isinstance(point, tuple)]
    distant = [point for point in points if isinstance(point, tuple)]
    for other, distance in distant:
        if other.numel() > count:
            _put(drawn, other, [(tensor, -distance)])
    times = min(_TIMES, count // (_SHARE * len(points)))
    if not times or tensor.dtype not in _DTYPES or not tensor.is_contiguous():
        return
    (low, high), flat, inner = _range(tensor), tensor.view(-1), range(1, count - 1)

    def write(places: list[int], values: list[float], at_most: int) -> None:
        # Of few elements lists are compared at a fraction of what it costs torch.
        rounded = torch.tensor(values, dtype=tensor.dtype)
        triples = enumerate(zip(values, rounded.tolist(), flat[torch.tensor(places)].tolist(), strict=True))
        fits = [i for i, (new, near, old) in triples if low <= new <= high and new == near and math.isfinite(old)]
        fits = fits[:at_most]
        flat[torch.tensor([places[i] for i in fits], dtype=torch.int64)] = rounded[fits]

    if numbers:
        write(drawn.places.sample(inner, len(numbers) * times), numbers * times, len(numbers) * times)
    for other, distance in (point for point in distant if point[0].numel() <= count):
        places = drawn.places.sample(inner, min(len(inner), times * _TRIED))
        those = other.expand_as(tensor).take(torch.tensor(places)).tolist()
        # A difference that is exact here is so in every precision; NaN fits nowhere.
        write(places, [x + distance if x + distance - x == distance else math.nan for x in those], times)


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    """Return the least and the greatest finite value; NaN where there is none, which is less than nothing."""
    low, high = (bound.item() for bound in tensor.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        finite = tensor[tensor.isfinite()]
        low, high = (bound.item() for bound in finite.aminmax()) if finite.numel() else (math.nan, math.nan)
    return low, high


def _lanes(
    drawn: DrawnArguments, values: torch.Tensor, dim_at: int, dim: int | None, share: int = 1
) -> Iterator[torch.Tensor]:
    """Yield a few of the lanes that a call goes along, one of ``share`` at most, if they are long enough for ties.

    The tensor's first and last element, its extrema, are written back in the end. Of dimensions that do not lie in
    memory as one the lanes are copies: what is written there is lost.
    """
    along = drawn.get(dim_at, "dim")
    # sort(x, descending) may come without a dimension, and so may unique(x, sorted).
    along = dim if along is None or isinstance(along, bool) else along
    dims = tuple(range(values.dim())) if along in (None, (), []) else (along,) if isinstance(along, int) else along
    lanes = values.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))
    count, ends = lanes.shape[:-1].numel(), values.view(-1)[[0, -1]]
    if lanes.shape[-1] >= _SHARE:
        for number in drawn.places.sample(range(count), min(_TIMES, count // share)):
            yield lanes[tuple(map(int, np.unravel_index(number, lanes.shape[:-1])))]
    values.view(-1)[[0, -1]] = ends
