"""Every number that a standard may ask for, measured in one walk over target and golden.

Real and complex floating-point outputs are compared in float64, chunk by chunk, so that the extra memory is a few
chunks whatever the size of the output. A complex number counts as two elements (its parts) that share its modulus
as magnitude. Integers and bools are compared exactly.

Non-finite elements: NaN against NaN, inf against an inf of the same sign, and inf against a golden value that
overflows in the target's dtype are *equal*; they count as elements without error. Every other pair with a NaN or inf
is counted in ``nonfinite_mismatch`` and as an infinite error wherever that is meaningful.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from msprobe_standards.accumulation import Walk
from msprobe_standards.chunking import chunks
from msprobe_standards.correlated_error import shared_error
from msprobe_standards.dtypes import Bounds, family, msprobe_bounds
from msprobe_standards.tensor_layouts import as_array, is_array, is_plain
from msprobe_standards.validation import hint

Numbers = Iterator[tuple[str, float]]

METRICS: Mapping[str, str] = {
    "max_abs_err": "greatest |target - golden|",
    "nonfinite_mismatch": "elements whose NaN or inf disagree",
    "error_rate": "share of elements that differ from the golden value as it is, unrounded",
    "cast_error_rate": "share of elements that differ from the golden value rounded to the target's dtype",
    "cosine_sim": "cosine of the angle between target and golden; NaN where it is not defined",
    "rel_err_hundredth": "share of elements with relative error below 0.01",
    "rel_err_thousandth": "share of elements with relative error below 0.001",
    "rel_err_ten_thousandth": "share of elements with relative error below 0.0001",
    "eb": "error balance, |elements above - elements below| / all",
    "rmse": "root mean square error of the normal elements",
    "max_rel_error": "greatest relative error of the normal elements",
    "mean_rel_error": "mean relative error of the normal elements",
    "small_value_err_ratio": "share of the small elements with absolute error above small_atol",
    "abs_err_ratio": "share of the small elements with absolute error above atol",
    "rel_err_ratio": "share of the normal elements with relative error above rtol",
    "inf_nan_error_ratio": "share of the NaN, inf and overflowing elements that are wrong",
    "max_ulp_error": "greatest error in units of the golden value's last place",
    "mean_ulp_error": "mean error in units of the golden value's last place",
    "ulp_error_proportion": "share of elements with an ULP error above the ulp bound",
    "scale": "mean |golden|, the output's own scale",
    "max_scaled_error": "greatest |target - golden| / max(|golden|, scale), in unit roundoffs",
    "rms_scaled_error": "root mean square of |target - golden| / max(|golden|, scale), in unit roundoffs",
    "gain_error": "least-squares gain of target over golden less one, in unit roundoffs; truncation makes it negative",
    "gain_z": "gain_error in its own standard errors",
    "tail_share": "share of elements with a relative error above the bound tail",
    "shared_error": "root mean square error that elements with neighbouring golden values share, in unit roundoffs",
    "shared_z": "shared_error's square in its own standard errors",
}
"""Name and meaning of every metric, in the order of `Metrics`."""

_GROUPS: Mapping[str, frozenset[str]] = {
    "base": frozenset({"max_abs_err", "nonfinite_mismatch"}),
    "equality": frozenset({"error_rate"}),
    "cast": frozenset({"cast_error_rate"}),
    "cosine": frozenset({"cosine_sim"}),
    "relative": frozenset({"rel_err_hundredth", "rel_err_thousandth", "rel_err_ten_thousandth"}),
    "balance": frozenset({"eb"}),
    "regions": frozenset(
        {
            "rmse",
            "max_rel_error",
            "mean_rel_error",
            "small_value_err_ratio",
            "abs_err_ratio",
            "rel_err_ratio",
            "inf_nan_error_ratio",
        }
    ),
    "ulp": frozenset({"max_ulp_error", "mean_ulp_error", "ulp_error_proportion"}),
    "scaled": frozenset({"scale", "max_scaled_error", "rms_scaled_error", "gain_error", "gain_z", "tail_share"}),
    "neighbours": frozenset({"shared_error", "shared_z"}),
}
_INTEGER_METRICS = frozenset({"max_abs_err", "nonfinite_mismatch", "error_rate", "cast_error_rate"})
_ALL_METRICS = frozenset(METRICS)

# Of more elements than these so many are rounded at once where two tensors are compared bit by bit: they stay in the
# processor's cache, and take longer than the calls that compare them.
_AT_ONCE, _PART = 2**20, 2**16

# Below, a call of torch takes as long as what it looks at.
_WORTH_IT = 2**13
_OF_NUMPY = frozenset({torch.float32, torch.float64})
_HALVES = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True, slots=True)
class Metrics(Mapping[str, float]):
    """The measured numbers of one output: a mapping from the metric's name, which `METRICS` explains.

    Integers and bools have no relative metrics.

    Attributes:
        values_by_name: The numbers by name.
        dtype: The target's dtype.
        numel: The number of elements.
        where: The index of the element with each greatest error, by the metric's name.
    """

    values_by_name: Mapping[str, float]
    dtype: torch.dtype
    numel: int
    where: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    @property
    def worst_index(self) -> tuple[int, ...] | None:
        """Index of the first NaN or inf that disagrees, else of the greatest error; None where there is no error."""
        for name in ("nonfinite_mismatch", "max_ulp_error", "max_scaled_error", "max_abs_err"):
            if name in self.where:
                return self.where[name]
        return None


def measure(
    target: torch.Tensor,
    golden: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    only: Collection[str] | None = None,
    bounds: Bounds | None = None,
    scale: float | None = None,
) -> Metrics:
    """Measure how far ``target`` is from ``golden``.

    Args:
        target: A CPU tensor of any shape.
        golden: A CPU tensor of the same shape and kind of number (bool, int, float, complex), usually of a wider dtype.
        dtype: The target's own dtype where ``target`` merely carries its values in a wider one.
        only: The metrics that are needed, by default all of `METRICS` that the dtype has; others that cost nothing may
            be added.
        bounds: Where shares are counted, by default `msprobe_bounds` of the dtype.
        scale: The mean golden magnitude of the whole output where the tensors are a part of it, by default their own.

    Returns:
        The metrics.

    Raises:
        ValueError: Shapes or kinds of number differ, a metric is unknown, or a tensor is not plain (see `in_parts`).
    """
    dtype = dtype or target.dtype
    _check(target, golden, dtype, only)
    if family(dtype) in ("bool", "int"):
        return _measure_integers(target, golden, dtype)
    target, golden = _plain(target), _plain(golden)
    walk = Walk(dtype, groups_of(None if only is None else frozenset(only)), bounds or msprobe_bounds(dtype))
    walk.over(target, golden, scale)
    numbers = numbers_of(walk)
    if "neighbours" in walk.groups:
        numbers["shared_error"], numbers["shared_z"] = shared_error(target, golden, dtype, walk.bounds.shared_floor)
    width = 2 if target.is_complex() else 1
    where = {name: _unravel(flat // width, target.shape) for name, flat in walk.where.items()}
    return Metrics(numbers, dtype, walk.count, where)


@cache
def groups_of(only: frozenset[str] | None) -> frozenset[str]:
    """Return the groups of metrics that a walk accumulates for these names; None for all."""
    metrics = _ALL_METRICS if only is None else only
    return frozenset(group for group, names in _GROUPS.items() if group == "base" or names & metrics)


def numbers_of(walk: Walk) -> dict[str, float]:
    """Return the metrics that a walk has accumulated, by name."""
    return {name: value for group in _RESULTS if group in walk.groups for name, value in _RESULTS[group](walk)}


def bit_equal(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return quickly whether ``target`` equals ``golden`` rounded to ``dtype``; NaN may give a false "no"."""
    dtype = dtype or target.dtype
    if target.numel() > _AT_ONCE and target.shape == golden.shape:
        # No second copy of all elements is made, and what differs mostly does so in the first chunk.
        return all(_bit_equal(ours, theirs, dtype) for _, ours, theirs in chunks(target, golden, length=_PART))
    return _bit_equal(target, golden, dtype)


def _bit_equal(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> bool:
    if golden.dtype != dtype:
        golden = golden.to(dtype)
    if target.dtype != dtype:
        golden = golden.to(target.dtype)
    if target.dtype.itemsize == 1 and target.dtype.is_floating_point:
        return torch.equal(target.view(torch.uint8), golden.view(torch.uint8))
    if target.dtype == torch.complex32:
        target, golden = torch.view_as_real(target.resolve_conj()), torch.view_as_real(golden.resolve_conj())
    if target.shape != golden.shape or not (is_array(target) and is_array(golden)):
        return torch.equal(target, golden)
    if target.dtype in _OF_NUMPY:
        # In less than half of the time that torch.equal takes, of few elements and of many.
        return bool((as_array(target) == as_array(golden)).all())
    return _has_equal_bits(target, golden) or torch.equal(target, golden)


def _has_equal_bits(target: torch.Tensor, golden: torch.Tensor) -> bool:
    """Return whether two tensors of a half precision have the same bits and no NaN, at a third of torch.equal's cost.

    Only of what is large enough for that. False says nothing.
    """
    if target.dtype not in _HALVES or target.numel() < _WORTH_IT:
        return False
    same = np.array_equal(as_array(target.view(torch.int16)), as_array(golden.view(torch.int16)))
    # A NaN shows in the sum, and so may infinities.
    return same and not math.isnan(target.sum().item())


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor without autograd, lazy conjugation and lazy negation."""
    return tensor.detach().resolve_conj().resolve_neg()


def _check(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype, only: Collection[str] | None) -> None:
    for tensor in (target, golden):
        if not is_plain(tensor):
            raise ValueError(f"a {_layout(tensor)} tensor cannot be measured whole; measure its parts (in_parts)")
    if target.shape != golden.shape:
        raise ValueError(f"target has shape {tuple(target.shape)}, golden has {tuple(golden.shape)}")
    if not family(target.dtype) == family(golden.dtype) == family(dtype):
        raise ValueError(f"{dtype} target cannot be compared with {golden.dtype} golden: different kinds of number")
    if only is not None and not _ALL_METRICS.issuperset(only):
        unknown = sorted(set(only) - _ALL_METRICS)
        raise ValueError(f"unknown metric: {', '.join(unknown)}{hint(unknown[0], METRICS)}")


def _layout(tensor: torch.Tensor) -> str:
    return "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else str(tensor.layout)


def _measure_integers(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> Metrics:
    """Compare integers or bools exactly, whatever the widths of the two dtypes."""
    t, g = as_array(_plain(target)).reshape(-1), as_array(_plain(golden)).reshape(-1)
    different = np.not_equal(t, g)
    count = int(np.count_nonzero(different))
    numbers = dict.fromkeys(_INTEGER_METRICS, 0.0)
    where: dict[str, tuple[int, ...]] = {}
    if count:
        # Python integers: the distance of two int64 or uint64 values does not fit either of them.
        at = np.flatnonzero(different)
        gaps = np.abs(t[at].astype(object) - g[at].astype(object)) if t.dtype != np.bool_ else np.ones(count)
        numbers["max_abs_err"] = float(gaps.max())
        where["max_abs_err"] = _unravel(int(at[gaps.argmax()]), target.shape)
        numbers["error_rate"] = numbers["cast_error_rate"] = count / t.size
    return Metrics(numbers, dtype, target.numel(), where)


def _unravel(flat: int, shape: torch.Size) -> tuple[int, ...]:
    at = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        at.append(position)
    return tuple(reversed(at))


def _base(walk: Walk) -> Numbers:
    yield "max_abs_err", math.inf if walk.mismatched else walk.max_abs_err
    yield "nonfinite_mismatch", float(walk.mismatched)


def _equality(walk: Walk) -> Numbers:
    yield "error_rate", _share(walk.unequal, walk.count)


def _cast(walk: Walk) -> Numbers:
    yield "cast_error_rate", _share(walk.cast_unequal, walk.count)


def _cosine(walk: Walk) -> Numbers:
    length = math.sqrt(walk.tt) * math.sqrt(walk.gg)
    defined = length > 0 and not walk.mismatched
    yield "cosine_sim", max(-1.0, min(1.0, walk.tg / length)) if defined else math.nan


def _relative(walk: Walk) -> Numbers:
    equal_nonfinite = walk.count - walk.finite - walk.mismatched
    names = ("rel_err_hundredth", "rel_err_thousandth", "rel_err_ten_thousandth")
    for name, within in zip(names, walk.within, strict=True):
        yield name, _share(within + equal_nonfinite, walk.count, of_none=1.0)


def _balance(walk: Walk) -> Numbers:
    yield "eb", _share(abs(walk.above - walk.below), walk.count)


def _regions(walk: Walk) -> Numbers:
    yield "rmse", math.sqrt(_share(walk.normal_squares, walk.normal)) / walk.factor
    yield "max_rel_error", walk.normal_rel_max
    yield "mean_rel_error", _share(walk.normal_rel_sum, walk.normal)
    yield "small_value_err_ratio", _share(walk.small_over_small_atol, walk.small)
    yield "abs_err_ratio", _share(walk.small_over_atol, walk.small)
    yield "rel_err_ratio", _share(walk.normal_over_rtol, walk.normal)
    yield "inf_nan_error_ratio", _share(walk.special_bad, walk.special)


def _ulp(walk: Walk) -> Numbers:
    yield "max_ulp_error", math.inf if walk.mismatched else walk.ulp_max
    yield "mean_ulp_error", math.inf if walk.mismatched else _share(walk.ulp_sum, walk.count)
    yield "ulp_error_proportion", _share(walk.over_ulp + walk.mismatched, walk.count)


def _scaled(walk: Walk) -> Numbers:
    roundoff = walk.format.unit_roundoff
    yield "scale", walk.scale
    yield "max_scaled_error", math.inf if walk.mismatched else walk.scaled_max / roundoff
    yield (
        "rms_scaled_error",
        math.inf if walk.mismatched else math.sqrt(_share(walk.scaled_squares, walk.finite)) / roundoff,
    )
    yield "gain_error", walk.dg / walk.gg / roundoff if walk.gg else 0.0
    yield "gain_z", abs(walk.dg) / math.sqrt(walk.dg_squares) if walk.dg_squares else 0.0
    yield "tail_share", _share(walk.over_tail, walk.finite)


def _share(part: float, whole: int, of_none: float = 0.0) -> float:
    return part / whole if whole else of_none


_RESULTS: Mapping[str, Callable[[Walk], Numbers]] = {
    "base": _base,
    "equality": _equality,
    "cast": _cast,
    "cosine": _cosine,
    "relative": _relative,
    "balance": _balance,
    "regions": _regions,
    "ulp": _ulp,
    "scaled": _scaled,
}
