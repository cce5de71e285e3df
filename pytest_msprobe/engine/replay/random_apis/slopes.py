"""Randomized leaky ReLU: a random slope for each negative element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import distributions, tail_bound
from pytest_msprobe.engine.replay.random_apis.arguments import REQUIRED, Parameters, bound, tensors
from pytest_msprobe.engine.replay.random_apis.properties import Form, RandomProperty
from pytest_msprobe.engine.replay.random_apis.samples import against

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict


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
        # docs/standards.md, "Random results", on the roundings here and below
        spread = 2 * limits.eps * slopes.abs() + limits.smallest_normal
        bounds = distributions.uniform(self.lower, self.upper)
        return tail_bound.decided(against(slopes, bounds, eps=limits.eps, spread=spread))

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
    """``rrelu`` and ``rrelu_with_noise`` in training; with one slope only, nothing is random."""
    given = bound(api, _RRELU_WITH_NOISE if "noise" in api else _RRELU, args, kwargs)
    lower, upper = float(given["lower"]), float(given["upper"])
    return SlopeProperty(given["input"], lower, upper) if given["training"] and lower != upper else None
