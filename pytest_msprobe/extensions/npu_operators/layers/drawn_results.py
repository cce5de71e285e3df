"""Results that are drawn: masks of dropout, choices of places, likely tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from msprobe_hooks.dump.effects import Effects
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.random_apis import (
    distributions,
    dropout,
    factories,
    probability_switch,
    tail_bound,
)
from pytest_msprobe.engine.replay.random_apis.dropout import filled, kept_by
from pytest_msprobe.engine.replay.random_apis.independence import Choices, choices, judged
from pytest_msprobe.engine.replay.random_apis.random_property import (
    REQUIRED,
    Form,
    Parameters,
    PassesNoGradient,
    RandomProperty,
    bound,
    tensors,
)
from pytest_msprobe.engine.replay.random_apis.samples import choice_exponent, rounding
from pytest_msprobe.extensions.npu_operators.layers import drawn_choices

if TYPE_CHECKING:
    from msprobe_standards.verdict import Verdict

# a kernel may hold the probability in half precision
_SLACK = rounding(torch.float16)
# a quotient, a product and the softmax's own last places (docs/screening.md)
_ROUNDINGS = 4


@dataclass(frozen=True, slots=True)
class SeededBitsProperty(PassesNoGradient):
    """A bit for each of ``count`` elements, 0 with probability ``p``; what follows them is open."""

    count: int
    p: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, and the number and the neighbourhood of the zeros."""
        malformed = Form((filled(self.count) // 8,), torch.uint8).check(output)
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
        malformed = Form((filled(weights.numel()),), torch.uint8).check(mask)
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


@golden("Aten.npu_dropout_backward")
def npu_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return the gradient of a dropout with probability ``p``: grad / (1 - p) where ``mask`` keeps, otherwise 0."""
    if p == 1:
        return torch.zeros_like(grad_output)
    return torch.where(kept_by(mask, grad_output.shape), grad_output / (1 - p), 0.0)


@golden("NPU.npu_dropout_do_mask")
def npu_dropout_do_mask(self: Tensor, mask: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return (self / (1 - p) where ``mask`` keeps and 0 where it does not, mask)."""
    return npu_dropout_backward(self, mask, p), mask


@golden("NPU.npu_dropout_gen_mask", OpInfo(random=generated_mask))
def npu_dropout_gen_mask(
    size: Sequence[int],
    p: float,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """Return bits that each keep an element of ``size`` with probability 1 - ``p``; ``dtype`` is that of the input."""
    return _bits(math.prod(size), p, None)


@golden("NPU._npu_dropout_gen_mask", OpInfo(random=seeded_mask), recorded=False)
def _npu_dropout_gen_mask(
    self: Tensor,
    size: Sequence[int],
    p: float,
    seed: int,
    offset: int,
    *,
    parallel: bool | None = True,
    sync: bool | None = None,
) -> Tensor:
    """Return such bits, the same for the same ``seed`` and ``offset``; ``self`` has no part."""
    generator = torch.Generator().manual_seed((seed ^ (offset << 20)) % 2**63)
    return _bits(math.prod(size), p, generator)


@golden("NPU._npu_dropout", OpInfo(random=dropout.unconditional_dropout, switch=probability_switch.probability("p", 1)))
def _npu_dropout(self: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return (self / (1 - p) where a drawn mask keeps and 0 where it does not, mask)."""
    return npu_dropout_do_mask(self, _bits(self.numel(), p, None), p)


def _bits(count: int, p: float, generator: torch.Generator | None) -> Tensor:
    is_kept = torch.zeros(filled(count), dtype=torch.int64)
    is_kept[:count] = torch.rand(count, generator=generator) >= p
    return (is_kept.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)


_IGNORED = -1
# a product of whole numbers and a fraction that rounding left below a whole number
_ROUNDED = 1e-6


@golden(
    "NPU.npu_sim_exponential_",
    OpInfo(random=factories.one_parameter(distributions.exponential, 1.0)),
    Effects(frozenset({"0", "self", "input"})),
)
def npu_sim_exponential_(self: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill ``self`` with exponential numbers of rate ``lambd``."""
    return self.exponential_(lambd)


@golden("NPU.npu_random_choice_with_mask", OpInfo(random=drawn_choices.random_choice))
def npu_random_choice_with_mask(x: Tensor, count: int = 256, seed: int = 0, seed2: int = 0) -> tuple[Tensor, Tensor]:
    """Return (``count`` places of true elements of ``x``, filled up with 0, which of them are such); 0 is all."""
    places = x.nonzero()
    selected = places[torch.randperm(len(places))][: count or len(places)]
    missing = (count or len(places)) - len(selected)
    mask = torch.arange(len(selected) + missing) < len(selected)
    return torch.cat([selected, selected.new_zeros(missing, x.dim())]).to(torch.int32), mask


@golden("NPU.npu_sub_sample", OpInfo(random=drawn_choices.subsample))
def npu_sub_sample(self: Tensor, per_images: int, positive_fraction: float) -> Tensor:
    """Return labels of which at most ``per_images`` are left, the positive ones of them at most that fraction."""
    positive, negative = ((self == label).nonzero().flatten() for label in (1, 0))
    positive = positive[torch.randperm(len(positive))][: int(per_images * positive_fraction + _ROUNDED)]
    negative = negative[torch.randperm(len(negative))][: per_images - len(positive)]
    return torch.full_like(self, _IGNORED).index_fill(0, positive, 1).index_fill(0, negative, 0)


# the largest k that the sampling operator knows, and what it rounds the limit up to
_MOST_KEPT, _STEP_OF_LIMIT = 1024, 8


@golden("NPU.npu_top_k_top_p", OpInfo(random=drawn_choices.top_k_top_p))
def npu_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """Return ``logits`` with -inf in place of what is below the k-th largest, then outside of the share ``p``.

    From the smallest up, those are outside whose sum of probabilities is at most 1 - p; the largest never is.
    """
    ordered, order = logits.sort(dim=-1, stable=True)
    if k is not None:
        threshold = ordered.gather(1, (logits.shape[1] - k.long()).clamp(0, logits.shape[1] - 1)[:, None])
        ordered = ordered.masked_fill(ordered < threshold, -torch.inf)
    if p is not None:
        outside = ordered.softmax(-1).cumsum(-1) <= 1 - p[:, None]
        outside[:, -1] = False
        ordered = ordered.masked_fill(outside, -torch.inf)
    return ordered.gather(1, order.argsort(-1))


@golden("NPU.npu_top_k_top_p_sample", OpInfo(random=drawn_choices.top_k_top_p_sample))
def npu_top_k_top_p_sample(
    logits: Tensor, top_k: Tensor, top_p: Tensor, q: Tensor | None = None, eps: float | None = 1e-8,
    is_need_logits: bool | None = False, top_k_guess: int | None = 32, min_ps: Tensor | None = None,
    ks_max: int | None = 1024, input_is_logits: bool | None = True, post_sample: str | None = "qSample",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (a token of each row, the scores that are left if they are asked for).

    A row is put in order of size where one of its filters applies; ``q`` weighs the scores in that order.
    """
    size = logits.shape[1]
    limit = -(-min(_MOST_KEPT if ks_max is None else ks_max, _MOST_KEPT) // _STEP_OF_LIMIT) * _STEP_OF_LIMIT
    gone = -torch.inf if input_is_logits else 0.0
    tokens, selected = [], torch.full(logits.shape, gone, dtype=torch.float32)
    for number, row in enumerate(logits):
        k, share = int(top_k[number]), float(top_p[number])
        by_number, by_share = 1 <= k <= min(size, limit), share < 1
        is_ordered = by_number or by_share
        order = row.argsort(descending=True, stable=True) if is_ordered else torch.arange(size)
        order = order[:k] if by_number else order
        shares = _shares(row[order], input_is_logits)
        left = torch.ones(len(order), dtype=torch.bool)
        if by_share:
            left = shares.cumsum(0) - shares <= share if share > 0 else ~left
            left[0] = True
        if min_ps is not None and float(min_ps[number]) > 0:
            left &= shares >= shares.max() * min(float(min_ps[number]), 1.0)
        order = order[left]
        weights = _shares(row[order], input_is_logits)
        if str(post_sample).lower() == "multinomial":
            best = int(weights.multinomial(1))
        elif q is None or post_sample == "None":
            best = int(weights.argmax())
        else:
            best = int((weights / (q[number, : len(order)].abs() + (eps or 0.0))).argmax())
        tokens.append(int(order[best]))
        selected[number, order] = row[order].float()
    return torch.tensor(tokens, dtype=torch.int64), selected if is_need_logits else selected.new_empty(0)


def _shares(scores: Tensor, are_logits: bool | None) -> Tensor:
    return scores.softmax(-1) if are_logits else scores
