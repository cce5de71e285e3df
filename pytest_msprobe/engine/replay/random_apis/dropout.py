"""Dropout of every kind: two possible values for each element, chosen by a random mask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import distributions, tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import Choices, choices, judged
from pytest_msprobe.engine.replay.random_apis.random_property import (
    REQUIRED,
    Form,
    Parameters,
    RandomProperty,
    bound,
    tensors,
)
from pytest_msprobe.engine.replay.random_apis.samples import against, choice_exponent, halves, rounding
from pytest_msprobe.engine.replay.random_apis.unverifiable import UnjudgedProperty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# minus the value to which SELU saturates: what alpha dropout puts in place of an element (Klambauer et al., 2017)
_ALPHA = 1.7580993408473766
# scaling and shifting round a handful of times (docs/screening.md)
_ROUNDINGS = 3
# masks of an NPU are filled up to so many bits or bytes
_FILLED_TO = 128


@dataclass(frozen=True, slots=True)
class MaskProperty:
    """Each element of ``x`` becomes ``scale`` x + ``shift``, or ``dropped`` with probability ``p``.

    The first ``mask_dims`` dimensions have a mask value of their own, all others share it (whole channels);
    None is a value for each element.
    """

    x: Tensor
    p: float
    scale: float
    shift: float = 0.0
    dropped: float = 0.0
    mask_dims: int | None = None

    def check_forward(self, output: Any) -> Verdict:
        """Judge values, whole channels, and the number and the neighbourhood of what was dropped."""
        malformed = Form(tuple(self.x.shape), self.x.dtype).check(output)
        if malformed:
            return malformed
        kept, dropped = self._readings(tensors(output)[0])
        wrong = int((self.x.isfinite() & ~kept & ~dropped).sum())
        if wrong:
            return tail_bound.broken(
                f"{wrong} of {self.x.numel()} elements are neither dropped nor the input times {self.scale:.6g}",
                wrong=wrong,
            )
        known_kept, known_dropped = self._by_mask_value(kept & ~dropped, dropped & ~kept)
        torn = int((known_kept & known_dropped).sum())
        if torn:
            return tail_bound.broken(f"{torn} channels are dropped in part", torn=torn)
        mask = self._returned_mask(output)
        if mask is not None:
            contradictions = int((known_kept & ~mask).sum() + (known_dropped & mask).sum())
            if contradictions:
                return tail_bound.broken(
                    f"the returned mask contradicts {contradictions} elements", contradictions=contradictions
                )
        return tail_bound.decided([verdict for drawn in self.choices(output) for verdict in judged(drawn)])

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Judge that the gradient went through the mask of the forward."""
        incoming, found = tensors(grad_outputs), tensors(grad_inputs)
        if not incoming or not found:
            return None
        gradient, grad_output = found[0], incoming[0]
        if gradient.shape != self.x.shape:
            return tail_bound.broken(
                f"the gradient's shape is {tuple(gradient.shape)}, the input's {tuple(self.x.shape)}"
            )
        kept, dropped = self._readings(tensors(output)[0])
        known_kept, known_dropped = self._by_mask_value(kept & ~dropped, dropped & ~kept)
        mask = self._returned_mask(output)
        if mask is not None:
            known_kept, known_dropped = mask, ~mask
        may_be_kept, may_be_dropped = self._spread_out(~known_dropped), self._spread_out(~known_kept)
        g = grad_output.double() * self.scale
        as_kept = _matches(gradient, g, g.abs())
        as_dropped = _matches(gradient, torch.zeros_like(g), torch.zeros_like(g))
        right = (as_kept & may_be_kept) | (as_dropped & may_be_dropped) | ~grad_output.isfinite()
        wrong = int((~right).sum())
        if wrong:
            return tail_bound.broken(
                f"{wrong} of {gradient.numel()} elements of the gradient do not follow the forward's mask",
                wrong=wrong,
            )
        return tail_bound.held("the gradient follows the forward's mask")

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which mask values were dropped."""
        mask = self._returned_mask(output)
        shape = self.x.shape if self.mask_dims is None else self.x.shape[: self.mask_dims]
        # a kernel may hold p in the precision of its input
        slack = rounding(self.x.dtype)
        if mask is not None:
            return [choices(~mask.view(shape), self.p, slack, what="dropped")]
        kept, dropped = self._known(output)
        return [choices(dropped.reshape(shape), self.p, slack, kept | dropped, what="dropped")]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        kept, dropped = self._known(output)
        return int((kept | dropped).sum()) * choice_exponent(torch.tensor([self.p]))

    def _known(self, output: Any) -> tuple[Tensor, Tensor]:
        """Return which mask values are known to keep and to drop, flat."""
        kept, dropped = self._readings(tensors(output)[0])
        return self._by_mask_value(kept & ~dropped, dropped & ~kept)

    def _readings(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return for each element whether it may be kept and whether it may be dropped; both where they agree."""
        scaled = self.x.double() * self.scale
        kept = _matches(y, scaled + self.shift, scaled.abs() + abs(self.dropped) + abs(self.shift))
        constant = torch.full_like(scaled, self.dropped)
        dropped = _matches(y, constant, constant.abs() + abs(self.shift))
        usable = self.x.isfinite()
        return kept & usable, dropped & usable

    def _by_mask_value(self, kept: Tensor, dropped: Tensor) -> tuple[Tensor, Tensor]:
        """Gather what is known of each mask value from the elements that share it."""
        if self.mask_dims is None:
            return kept.flatten(), dropped.flatten()
        values = math.prod(self.x.shape[: self.mask_dims])
        if not self.x.numel():
            return kept.new_zeros(values), dropped.new_zeros(values)
        return kept.reshape(values, -1).any(-1), dropped.reshape(values, -1).any(-1)

    def _spread_out(self, by_mask_value: Tensor) -> Tensor:
        """Assign each element what holds for its mask value."""
        if self.mask_dims is None:
            return by_mask_value.reshape(self.x.shape)
        leading = self.x.shape[: self.mask_dims]
        ones = (1,) * (self.x.dim() - self.mask_dims)
        return by_mask_value.reshape(*leading, *ones).expand(self.x.shape)

    def _returned_mask(self, output: Any) -> Tensor | None:
        """Return the mask that comes with the result, true where kept, flat; None where there is none."""
        if self.mask_dims is not None:
            return None
        others = tensors(output)[1:]
        return returned_mask(others[0], self.x.shape) if others else None


def _matches(actual: Tensor, expected: Tensor, magnitude: Tensor) -> Tensor:
    """Return where ``actual`` is ``expected`` but for the rounding of terms of that ``magnitude``."""
    limits = torch.finfo(actual.dtype)
    tolerance = _ROUNDINGS * limits.eps * magnitude + limits.smallest_normal
    found = actual.double()
    near = (found - expected).abs() <= tolerance
    overflown = found.isinf() & (found.sign() == expected.sign()) & (expected.abs() + tolerance >= limits.max)
    return near | overflown


_DROPOUT: Parameters = (("input", REQUIRED), ("p", 0.5), ("training", True))
_ALPHA_DROPOUT: Parameters = (("input", REQUIRED), ("p", 0.5), ("training", False))
_ALWAYS: Parameters = (("input", REQUIRED), ("p", REQUIRED))


def dropout(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of dropout of single elements and of whole channels."""
    given = bound(api, _DROPOUT, args, kwargs)
    # native_dropout takes None for "in training"
    training = given["training"] or given["training"] is None
    return _plain(api, given["input"], float(given["p"])) if training else None


def unconditional_dropout(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``_npu_dropout(input, p)`` and ``_fused_dropout(input, keep_probability)``."""
    given = bound(api, _ALWAYS, args, kwargs)
    p = float(given["p"])
    return _plain(api, given["input"], 1 - p if api == "_fused_dropout" else p)


def _plain(api: str, x: Tensor, p: float) -> RandomProperty | None:
    if p == 0:
        return None
    if not x.is_floating_point():
        return UnjudgedProperty(f"dropout of {x.dtype} is not judged")
    return MaskProperty(x, p, 0.0 if p == 1 else 1 / (1 - p), mask_dims=_mask_dims(api, x))


def alpha_dropout(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of alpha dropout of single elements and of whole channels."""
    given = bound(api, _ALPHA_DROPOUT, args, kwargs)
    x, p = given["input"], float(given["p"])
    if not given["training"] or p == 0:
        return None
    if not x.is_floating_point():
        return UnjudgedProperty(f"dropout of {x.dtype} is not judged")
    if p == 1:
        return MaskProperty(x, p, 0.0, mask_dims=_mask_dims(api, x))
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    return MaskProperty(x, p, scale, _ALPHA * scale * p, -_ALPHA * scale * (1 - p), _mask_dims(api, x))


def _mask_dims(api: str, x: Tensor) -> int | None:
    """Return how many leading dimensions have a mask of their own; without a batch it is the channels only."""
    if api in ("dropout1d", "dropout3d"):
        unbatched = 2 if api == "dropout1d" else 4
        return 1 if x.dim() == unbatched else 2
    return 2 if api == "dropout2d" or api.startswith("feature_") else None


@dataclass(frozen=True, slots=True)
class SlopeProperty:
    """Negative elements of ``x`` are multiplied by uniform slopes, the others stay (rrelu)."""

    x: Tensor
    lower: float
    upper: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge what must stay, and the slopes."""
        malformed = Form(tuple(self.x.shape), self.x.dtype).check(output)
        if malformed:
            return malformed
        x, y = self.x.double(), tensors(output)[0].double()
        changed = int(((x >= 0) & (x != y)).sum())
        if changed:
            return tail_bound.broken(f"{changed} elements that are not negative were changed", changed=changed)
        limits = torch.finfo(self.x.dtype)
        # below, the product is a subnormal number, whose slope cannot be read
        legible = (
            x.isfinite() & (x < 0) & (x.abs() * min(1.0, abs(self.lower) or 1.0) > limits.smallest_normal / limits.eps)
        )
        slopes = y[legible] / x[legible]
        # docs/screening.md, on the roundings here and below
        spread = 2 * limits.eps * slopes.abs() + limits.smallest_normal
        bounds = distributions.uniform(self.lower, self.upper)
        verdicts = against(slopes, bounds, eps=limits.eps, spread=spread)
        moved = float(spread.detach().max()) if spread.numel() else 0.0
        streams = halves(slopes, bounds, limits.eps, moved)
        return tail_bound.decided([*verdicts, *(verdict for bits in streams for verdict in judged(bits))])

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Judge that the gradient has the forward's slopes."""
        found, incoming = tensors(grad_inputs), tensors(grad_outputs)
        if not found or not incoming:
            return None
        x, y, g, gradient = (t.double() for t in (self.x, tensors(output)[0], incoming[0], found[0]))
        limits = torch.finfo(self.x.dtype)
        legible = x.isfinite() & g.isfinite() & ((x > 0) | (x.abs() > limits.smallest_normal / limits.eps)) & (x != 0)
        expected = g * torch.where(x > 0, 1.0, y / x)
        near = (gradient - expected).abs() <= 4 * limits.eps * expected.abs() + limits.smallest_normal
        wrong = int((legible & ~near).sum())
        if wrong:
            return tail_bound.broken(
                f"{wrong} of {x.numel()} elements of the gradient do not have the forward's slope", wrong=wrong
            )
        return tail_bound.held("the gradient has the forward's slopes")


_RRELU: Parameters = (("input", REQUIRED), ("lower", 1 / 8), ("upper", 1 / 3), ("training", False))
_RRELU_WITH_NOISE: Parameters = (
    ("input", REQUIRED), ("noise", REQUIRED), ("lower", 1 / 8), ("upper", 1 / 3), ("training", False),
)  # fmt: skip


def rrelu(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``rrelu`` and ``rrelu_with_noise`` in training; with one slope only, nothing is random."""
    given = bound(api, _RRELU_WITH_NOISE if "noise" in api else _RRELU, args, kwargs)
    lower, upper = float(given["lower"]), float(given["upper"])
    return SlopeProperty(given["input"], lower, upper) if given["training"] and lower != upper else None


def kept_by(mask: Tensor, shape: torch.Size) -> Tensor:
    """Return which elements of a shape the bits of ``mask`` (bytes, filled up to 128 bits) keep."""
    bits = (mask.reshape(-1, 1).to(torch.int64) >> torch.arange(8)) & 1
    return bits.flatten()[: shape.numel()].view(shape).bool()


def returned_mask(mask: Tensor, shape: torch.Size) -> Tensor | None:
    """Return which elements of a shape a returned mask keeps, flat; None where it is of another shape.

    A byte for eight elements is an NPU's, anything else has a value for each.
    """
    if mask.dtype is torch.uint8 and mask.numel() == filled(shape.numel()) // 8:
        return kept_by(mask, shape).flatten()
    return mask.flatten().bool() if mask.shape == shape else None


def filled(count: int) -> int:
    """Return how many bits or bytes an NPU's mask of so many elements has."""
    return -(-count // _FILLED_TO) * _FILLED_TO
