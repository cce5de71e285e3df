"""The dropout mask inside attention, read from the results of a call whose inputs are made for it.

With queries of zero, every key that a query sees has a known weight; with a row of the identity as each key's value,
column j of the result holds the weight of key j alone, scaled, or zero where it was dropped. Where rows of the identity
arrive as the result's gradient too, the values' gradient holds the same numbers, transposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import Choices, choices, judged
from pytest_msprobe.engine.replay.random_apis.random_property import PassesNoGradient, tensors
from pytest_msprobe.engine.replay.random_apis.samples import choice_exponent

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# Kernels compare the bits of a byte with the probability, which moves it by up to 1/255; twice that is allowed.
_PROBABILITY_STEP = 2.0**-7
_BYTES = (255, 256)  # by which kernels make a share of a byte
# The weight, the scale, their product and the result are rounded, by half of a last place each.
_ROUNDINGS = 3
# As an operand of a product a weight may be rounded to bfloat16, by 2^-8, or in TF32 and HF32 by 2^-11; the values that
# show the mask are exact.
_ROUNDED_OPERANDS = 2.0**-8
_LAYOUT_AT = 4  # the place of ``input_layout`` among the arguments of ``npu_fusion_attention``
# The first parameters of each call.
_NAMES = ("query", "key", "value")


@dataclass(frozen=True, slots=True)
class WeightMask(PassesNoGradient):
    """Each positive element of ``weights`` is scaled by 1 / (1 - ``p``), or zero with probability ``p``."""

    weights: Tensor
    p: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge how many weights were dropped, that the mask does not repeat, and how large the kept ones are."""
        y = tensors(output)[0]
        dropped, known = self._mask(y)
        verdict = tail_bound.decided([verdict for drawn in self.choices(output) for verdict in judged(drawn)])
        wrong = int((known & ~dropped & ~self._kept(y, known & ~dropped)).sum())
        if verdict.outcome == "fail" or not wrong:
            return verdict
        reason = f"{wrong} of {int(known.sum())} weights are neither dropped nor scaled by {1 / (1 - self.p):.6g}"
        return tail_bound.broken(reason, wrong=wrong)

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which weights were dropped."""
        dropped, known = self._mask(tensors(output)[0])
        return [choices(dropped.view(self.weights.shape), self.p, _PROBABILITY_STEP, known, what="dropped")]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        _, known = self._mask(tensors(output)[0])
        return int(known.sum()) * choice_exponent(torch.tensor([self.p]))

    def _mask(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return which weights were dropped and of which this is known, both flat."""
        # What is smaller has fewer digits, or is flushed to zero.
        least = torch.finfo(y.dtype).smallest_normal
        return (y.abs() < least).flatten(), ((self.weights >= least) & y.isfinite()).flatten()

    def _kept(self, y: Tensor, not_dropped: Tensor) -> Tensor:
        """Return which weights are scaled as they should be, flat: all alike, by what is nearest to most of them."""
        found, weights, scales = y.double().flatten(), self.weights.double().flatten(), list(_scales(self.p, y.dtype))
        ratios = (found / weights)[not_dropped]
        typical = float(ratios.median()) if len(ratios) else scales[0]
        expected = weights * min(scales, key=lambda scale: abs(scale - typical))
        return (found - expected).abs() <= tolerance(y.dtype) * expected


def _scales(p: float, dtype: torch.dtype) -> Iterator[float]:
    """Yield 1 / (1 - p), for p as it is and as kernels round it: p to the dtype, or 1 - p to a value of a byte."""
    keep = 1 - p
    rounded = [1 - float(torch.tensor(p, dtype=dtype))]
    for steps in _BYTES:
        rounded += [math.floor(keep * steps) / steps, math.ceil(keep * steps) / steps]
    yield 1 / keep
    yield from (1 / each for each in rounded if each > 0)


def tolerance(dtype: torch.dtype) -> float:
    """Return the relative error that rounding makes of a kept weight."""
    return _ROUNDINGS * torch.finfo(dtype).eps + _ROUNDED_OPERANDS


def judge_gradient_of_values(output: Tensor, arriving: Tensor, gradient: Tensor, positions: int) -> Verdict | None:
    """Judge the gradient of values, which are the identity, by the weights that the ``output`` shows.

    None where it shows no weights. ``positions`` is the dimension of tokens. The first keys are judged, as many as
    there are features; the gradient of heads that share one value is a sum over them.
    """
    y, g, found = (each.double().transpose(positions, -2) for each in (output, arriving, gradient))
    if not y.isfinite().all() or found.dim() != y.dim():
        return None
    keys = min(found.shape[-2], y.shape[-1])
    expected = y[..., :keys].mT @ g
    for dim in [dim for dim, size in enumerate(found.shape[:-2]) if size != expected.shape[dim]]:
        if expected.shape[dim] % found.shape[dim]:
            return None
        groups = (*expected.shape[:dim], found.shape[dim], -1, *expected.shape[dim + 1 :])
        expected = expected.reshape(groups).sum(dim + 1)
    limits = torch.finfo(output.dtype)
    # The gradient rounds as the result does.
    allowed = 2 * tolerance(output.dtype) * expected.abs() + limits.smallest_normal
    wrong = int(((found[..., :keys, :] - expected).abs() > allowed).sum())
    if wrong:
        reason = f"{wrong} of {expected.numel()} weights in the gradient do not have the forward's mask and scale"
        return tail_bound.broken(reason, wrong=wrong)
    return tail_bound.held("the gradient has the forward's mask and scale")


@dataclass(frozen=True, slots=True)
class ReadableCall:
    """A call's arguments with inputs from whose results the mask can be read.

    ``positions`` is the dimension of tokens of its value at ``value``, a path, and of its result; None where the
    gradient of the values cannot be read.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: str = ""
    positions: int | None = None


#: Makes such a call; None where it cannot.
Readable = Callable[[Sequence[Any], Mapping[str, Any]], "ReadableCall | None"]


def readable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> ReadableCall | None:
    """Return the call of attention over (..., positions, features)."""
    return _with_unit_values(args, kwargs, _NAMES, positions=-2)


def readable_by_layout(args: Sequence[Any], kwargs: Mapping[str, Any]) -> ReadableCall | None:
    """Return the call of ``npu_fusion_attention`` whose heads have a dimension of their own."""
    layout = args[_LAYOUT_AT] if len(args) > _LAYOUT_AT else kwargs.get("input_layout")
    positions = {"BNSD": -2, "BSND": -3}.get(str(layout))
    return None if positions is None else _with_unit_values(args, kwargs, _NAMES, positions)


def readable_score(args: Sequence[Any], kwargs: Mapping[str, Any]) -> ReadableCall | None:
    """Return the call of ``npu_fused_attention_score``, whose result has its heads side by side."""
    made = _with_unit_values(args, kwargs, ("query_layer", "key_layer", "value_layer"), positions=-2)
    return None if made is None else ReadableCall(made.args, made.kwargs)


def identity_rows(like: Tensor, positions: int) -> Tensor:
    """Return a tensor of this form whose row at each position is that of the identity."""
    unit = torch.eye(like.shape[positions], like.shape[-1], dtype=like.dtype)
    spread = unit.view(unit.shape[0], *(1,) * (-positions - 2), unit.shape[1]).expand(like.shape)
    return spread.contiguous()


def _with_unit_values(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], positions: int
) -> ReadableCall | None:
    given = dict(zip(names, args, strict=False))
    query, value = (given.get(name, kwargs.get(name)) for name in (names[0], names[2]))
    if not isinstance(query, torch.Tensor) or not isinstance(value, torch.Tensor) or value.dim() < -positions:
        return None
    made = {names[0]: torch.zeros_like(query), names[2]: identity_rows(value, positions)}
    changed = tuple(made.get(name, tensor) for name, tensor in given.items())
    path = "args.2" if names[2] in given else f"kwargs.{names[2]}"
    named = {name: made.get(name, tensor) for name, tensor in kwargs.items()}
    return ReadableCall((*changed, *args[len(given) :]), named, path, positions)
