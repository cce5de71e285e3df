"""Dropout masks of an NPU: a bit for each element, or a byte, and dropout behind a softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import Choices, choices, judged
from pytest_msprobe.engine.replay.random_apis.sampled_indices import (
    REQUIRED,
    Form,
    Parameters,
    PassesNoGradient,
    RandomProperty,
    bound,
    tensors,
)
from pytest_msprobe.engine.replay.random_apis.samples import choice_exponent, rounding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# masks are filled up to so many bits or bytes
_FILLED = 128
# a kernel may hold the probability in half precision
_SLACK = rounding(torch.float16)
# a quotient, a product and the softmax's own last places (docs/standards-reference.md, "Random results")
_ROUNDINGS = 4


def kept_by(mask: Tensor, shape: torch.Size) -> Tensor:
    """Return which elements of a shape the bits of ``mask`` (bytes, filled up to 128 bits) keep."""
    bits = (mask.reshape(-1, 1).to(torch.int64) >> torch.arange(8)) & 1
    return bits.flatten()[: shape.numel()].view(shape).bool()


def returned_mask(mask: Tensor, shape: torch.Size) -> Tensor | None:
    """Return which elements of a shape a returned mask keeps, flat; None where it is of another shape.

    A byte for eight elements is an NPU's, anything else has a value for each.
    """
    if mask.dtype is torch.uint8 and mask.numel() == _filled(shape.numel()) // 8:
        return kept_by(mask, shape).flatten()
    return mask.flatten().bool() if mask.shape == shape else None


@dataclass(frozen=True, slots=True)
class SeededBitsProperty(PassesNoGradient):
    """A bit for each of ``count`` elements, 0 with probability ``p``; what follows them is open."""

    count: int
    p: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, and the number and the neighbourhood of the zeros."""
        malformed = Form((_filled(self.count) // 8,), torch.uint8).check(output)
        if malformed:
            return malformed
        dropped = ~kept_by(tensors(output)[0], torch.Size((self.count,)))
        zeros = int(dropped.sum())
        if self.p in (0, 1) and zeros != self.p * self.count:
            return tail_bound.broken(
                f"{zeros} of {self.count} bits are 0, with a probability of {self.p:g}", zeros=zeros
            )
        return tail_bound.decided(judged(choices(dropped, self.p, _SLACK, what="dropped")))


class BitsProperty(SeededBitsProperty):
    """Bits that another call draws anew."""

    __slots__ = ()

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which elements were dropped."""
        return [choices(~kept_by(tensors(output)[0], torch.Size((self.count,))), self.p, _SLACK, what="dropped")]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        return choice_exponent(torch.full((self.count,), self.p))


@dataclass(frozen=True, slots=True)
class SoftmaxDropoutProperty:
    """Results are (mask, weights, weights / (1 - p) where the mask has a byte that is not 0, otherwise 0)."""

    form: Form
    p: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge that the last result follows the others, and the number and the neighbourhood of what was dropped."""
        mask, weights, dropped = tensors(output)
        malformed = Form((_filled(weights.numel()),), torch.uint8).check(mask)
        malformed = malformed or self.form.check(weights) or self.form.check(dropped)
        if malformed:
            return malformed
        kept = mask[: weights.numel()] != 0
        expected = torch.where(kept.view(weights.shape), weights.double() / (1 - self.p), 0.0)
        limits = torch.finfo(dropped.dtype)
        # the weights are computed in half precision, whatever their dtype
        eps = max(limits.eps, torch.finfo(torch.float16).eps)
        tolerance = _ROUNDINGS * eps * expected.abs() + torch.finfo(torch.float16).smallest_normal * kept.view(
            weights.shape
        )
        wrong = int(((dropped.double() - expected).abs() > tolerance).sum())
        if wrong:
            return tail_bound.broken(f"{wrong} of {weights.numel()} weights do not follow the mask", wrong=wrong)
        return tail_bound.decided(judged(choices(~kept.view(weights.shape), self.p, _SLACK, what="dropped")))

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Skip: without the randomness the gradient has a golden one."""
        return tail_bound.unjudged("dropout inside: its gradient is judged without it")


_GEN_MASK: Parameters = (("size", REQUIRED), ("p", REQUIRED))
_SEEDED_MASK: Parameters = (("input", REQUIRED), ("size", REQUIRED), ("p", REQUIRED))
_ADD_SOFTMAX: Parameters = (
    ("input", REQUIRED), ("x1", REQUIRED), ("alpha", REQUIRED), ("prob", REQUIRED), ("dim", REQUIRED),
)  # fmt: skip


def generated_mask(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_dropout_gen_mask(size, p)``."""
    given = bound(api, _GEN_MASK, args, kwargs)
    return BitsProperty(math.prod(given["size"]), float(given["p"]))


def seeded_mask(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``_npu_dropout_gen_mask(self, size, p, seed, offset)``, the same for the same seed."""
    given = bound(api, _SEEDED_MASK, args, kwargs)
    return SeededBitsProperty(math.prod(given["size"]), float(given["p"]))


def dropout_with_softmax(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_dropout_with_add_softmax`` with a probability above 0."""
    given = bound(api, _ADD_SOFTMAX, args, kwargs)
    p, x = float(given["prob"]), given["input"]
    return None if p == 0 else SoftmaxDropoutProperty(Form(tuple(x.shape)), p)


def _filled(count: int) -> int:
    return -(-count // _FILLED) * _FILLED
