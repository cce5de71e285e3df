"""Choices that are drawn: tokens by their scores, places of true elements, labels of boxes to train on.

A sum of probabilities that meets a bound within rounding leaves its token open: there results jump, on correct devices
too. Everything else is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.random_property import (
    REQUIRED,
    Form,
    Parameters,
    PassesNoGradient,
    RandomProperty,
    bound,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# Sums of probabilities in float32: one rounding for each token in the worst case, and those of the exponentials.
_SUM = 1e-4
_STEP = 2.0**-24
# the largest k that the sampling operator knows
_MOST_KEPT = 1024
# the labels of a subsample
_POSITIVE, _NEGATIVE, _IGNORED = 1, 0, -1
# a product of whole numbers and a fraction that rounding left below a whole number
_ROUNDED = 1e-6


@dataclass(frozen=True, slots=True)
class Filter:
    """Which scores of each row are left for sure, and which may be."""

    left: Tensor
    open: Tensor


@dataclass(frozen=True, slots=True)
class FilteredProperty(PassesNoGradient):
    """The ``scores`` where they are left, otherwise -inf."""

    scores: Tensor
    filter: Filter

    def check_forward(self, output: Any) -> Verdict:
        """Judge each score that is not open."""
        malformed = Form(tuple(self.scores.shape), self.scores.dtype).check(output)
        return malformed or _judge_scores(tensors(output)[0], self.scores, self.filter, -torch.inf)


@dataclass(frozen=True, slots=True)
class TokenProperty(PassesNoGradient):
    """A token of each row, and if ``with_scores`` the scores that are left, others 0 or ``gone``.

    ``weighed`` has for each score what the token has most of, up to rounding; None where the token is drawn.
    """

    scores: Tensor
    filter: Filter
    weighed: Tensor | None
    with_scores: bool
    gone: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge that tokens are among those that are left, have most, and the scores."""
        rows = len(self.scores)
        malformed = Form((rows,), torch.int64).check(output)
        if malformed:
            return malformed
        tokens, *others = tensors(output)
        outside = int(((tokens < 0) | (tokens >= self.scores.shape[1])).sum())
        if outside:
            return tail_bound.broken(f"{outside} tokens are outside of the vocabulary", outside=outside)
        allowed = self.filter.left | self.filter.open
        gone = int((~allowed.gather(1, tokens[:, None])).sum())
        if gone:
            return tail_bound.broken(f"{gone} tokens are not among those that are left", gone=gone)
        if self.weighed is not None:
            found = self.weighed.gather(1, tokens[:, None]).squeeze(1)
            most = self.weighed.masked_fill(~self.filter.left, -torch.inf).amax(1)
            # where one is open the others' places, by which the weights go, may shift
            less = int(((found < most - _SUM * most.abs()) & ~self.filter.open.any(1)).sum())
            if less:
                return tail_bound.broken(f"{less} tokens are not those of the largest weight", less=less)
        if not self.with_scores:
            return tail_bound.held("tokens that may be sampled")
        malformed = Form(tuple(self.scores.shape), torch.float32).check(others)
        return malformed or _judge_scores(others[0], self.scores.float(), self.filter, self.gone, 0.0)


def _judge_scores(found: Tensor, scores: Tensor, filtered: Filter, *gone: float) -> Verdict:
    is_gone = torch.stack([found == value for value in gone]).any(0)
    same = (found == scores) | (found.isnan() & scores.isnan())
    wrong = (filtered.left & ~same) | (~filtered.left & ~filtered.open & ~is_gone) | (filtered.open & ~same & ~is_gone)
    count = int(wrong.sum())
    if count:
        return tail_bound.broken(
            f"{count} of {scores.numel()} scores are neither left as they must be nor gone", wrong=count
        )
    return tail_bound.held("scores are left or gone as they must be; where a sum meets its bound either is right")


def _slack(tokens: int) -> float:
    return _SUM + tokens * _STEP


def _by_threshold(scores: Tensor, k: Tensor | None, p: Tensor | None) -> Filter:
    """Return the filter of ``npu_top_k_top_p``: all that reach the k-th score, then sums above 1 - p from below."""
    ordered, order = scores.double().sort(dim=-1, stable=True)
    if k is not None:
        threshold = ordered.gather(1, (scores.shape[1] - k.long()).clamp(0, scores.shape[1] - 1)[:, None])
        ordered = ordered.masked_fill(ordered < threshold, -torch.inf)
    left, is_open = ordered > -torch.inf, torch.zeros_like(ordered, dtype=torch.bool)
    if p is not None:
        beyond = ordered.softmax(-1).cumsum(-1) - (1 - p.double()[:, None])
        is_open = left & (beyond.abs() <= _slack(scores.shape[1]))
        left = left & (beyond > 0)
        is_open[:, -1], left[:, -1] = False, ordered[:, -1] > -torch.inf
        is_open |= _split_ties(ordered, left)
    back = order.argsort(-1)
    return Filter((left & ~is_open).gather(1, back), is_open.gather(1, back))


def _sampled(given: Mapping[str, Any]) -> tuple[Filter, Tensor]:
    """Return the filter of ``npu_top_k_top_p_sample``, and each score's place by size, -1 where it is gone."""
    scores, limit = given["logits"].double(), _ks_limit(given["ks_max"])
    size = scores.shape[1]
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    k = given["top_k"].view(-1, 1).long()
    k = torch.where((k >= 1) & (k <= min(size, limit)), k, size)
    ranks = torch.arange(size).expand_as(ordered)
    left = ranks < k
    cut = ordered.masked_fill(~left, -torch.inf)
    probabilities = cut.softmax(-1) if given["input_is_logits"] else cut.masked_fill(~left, 0.0)
    p = given["top_p"].view(-1, 1).double()
    before = probabilities.cumsum(-1) - probabilities
    within = torch.where(p <= 0, ranks == 0, torch.where(p >= 1, True, before <= p))
    near = ((before - p).abs() <= _slack(size)) & (p > 0) & (p < 1) & (ranks > 0)
    left, is_open = left & within, left & near
    if given["min_ps"] is not None:
        share = given["min_ps"].view(-1, 1).double()
        least = torch.where(share >= 1, probabilities[:, :1], probabilities[:, :1] * share)
        above = (probabilities >= least) | (share <= 0)
        is_open = (is_open & above) | (
            left & ((probabilities - least).abs() <= _SUM * least) & (share > 0) & (ranks > 0)
        )
        left = left & above
    is_open |= _split_ties(ordered, left)
    back = order.argsort(-1)
    # where nothing is to be cut nothing is sorted
    places = torch.where((k == size) & (p >= 1), ranks, back)
    return Filter((left & ~is_open).gather(1, back), is_open.gather(1, back)), places


def _split_ties(ordered: Tensor, left: Tensor) -> Tensor:
    """Return which scores equal the least one that is left, where another one of them is not: any may be left."""
    least = ordered.masked_fill(~left, torch.inf).amin(-1, keepdim=True)
    ties = ordered == least
    return ties & (ties & ~left).any(-1, keepdim=True)


def _ks_limit(ks_max: int | None) -> int:
    most = min(_MOST_KEPT if ks_max is None else int(ks_max), _MOST_KEPT)
    return -(-most // 8) * 8


_FILTER: Parameters = (("logits", REQUIRED), ("p", None), ("k", None))
_SAMPLE: Parameters = (
    ("logits", REQUIRED), ("top_k", REQUIRED), ("top_p", REQUIRED), ("q", None), ("eps", 1e-8),
    ("is_need_logits", False), ("top_k_guess", 32), ("min_ps", None), ("ks_max", 1024), ("input_is_logits", True),
    ("post_sample", "qSample"),
)  # fmt: skip


def top_k_top_p(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_top_k_top_p``."""
    given = bound(api, _FILTER, args, kwargs)
    return FilteredProperty(given["logits"], _by_threshold(given["logits"], given["k"], given["p"]))


def top_k_top_p_sample(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_top_k_top_p_sample``."""
    given = bound(api, _SAMPLE, args, kwargs)
    filtered, places = _sampled(given)
    logits, q, kind = given["logits"], given["q"], str(given["post_sample"]).lower()
    weighed: Tensor | None = logits.double()
    if kind == "multinomial":
        weighed = None
    elif q is not None and kind == "qsample":
        kept = logits.double().masked_fill(~filtered.left, -torch.inf)
        chances = kept.softmax(-1) if given["input_is_logits"] else kept.clamp(min=0.0)
        weighed = chances / (q.double().abs().gather(1, places) + float(given["eps"]))
    gone = -torch.inf if given["input_is_logits"] else 0.0
    return TokenProperty(logits, filtered, weighed, bool(given["is_need_logits"]), gone)


@dataclass(frozen=True, slots=True)
class ChoiceProperty(PassesNoGradient):
    """``count`` places of true elements of ``x``, each at most once, and a mask of how many there are; 0 are all."""

    x: Tensor
    count: int

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, number, that the places are true ones and differ, and the share of them from the first half."""
        true = self.x.bool().flatten().nonzero().flatten()
        count = self.count or len(true)
        malformed = Form((count, self.x.dim()), torch.int32).check(output)
        malformed = malformed or Form((count,), torch.bool).check(tensors(output)[1:])
        if malformed:
            return malformed
        places, mask = tensors(output)
        picked = places[mask].long()
        if len(picked) != min(count, len(true)):
            return tail_bound.broken(f"{len(picked)} places are chosen of {len(true)}", chosen=float(len(picked)))
        sizes = torch.tensor(self.x.shape)
        outside = int(((picked < 0) | (picked >= sizes)).sum())
        if outside:
            return tail_bound.broken(f"{outside} places are outside of the input", outside=outside)
        strides = torch.tensor([self.x.shape[dim + 1 :].numel() for dim in range(self.x.dim())])
        flat = (picked * strides).sum(-1)
        untrue = int((~self.x.bool().flatten()[flat]).sum())
        if untrue:
            return tail_bound.broken(f"{untrue} chosen elements are not true", untrue=untrue)
        repeated = len(flat) - len(set(flat.tolist()))
        if repeated:
            return tail_bound.broken(f"{repeated} places are chosen again", repeated=repeated)
        if not len(flat):
            return tail_bound.held("nothing to choose")
        # draws without replacement stray less than independent ones (Hoeffding, 1963)
        half = len(true) // 2
        first = int((flat < true[half]).sum())
        return tail_bound.share("share of the first half", (first, first), len(flat), half / len(true))


@dataclass(frozen=True, slots=True)
class SubsampleProperty(PassesNoGradient):
    """``labels`` (1, 0 and -1), of which all but ``per_images`` ones and zeros become -1, by the share of ones."""

    labels: Tensor
    per_images: int
    positive_fraction: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge that labels are kept or ignored, and how many ones and zeros are left."""
        malformed = Form(tuple(self.labels.shape), self.labels.dtype).check(output)
        if malformed:
            return malformed
        left = tensors(output)[0]
        changed = int(((left != self.labels) & (left != _IGNORED)).sum())
        if changed:
            return tail_bound.broken(f"{changed} labels are neither kept nor ignored", changed=changed)
        most = int(self.per_images * self.positive_fraction + _ROUNDED)
        ones = min(most, int((self.labels == _POSITIVE).sum()))
        zeros = min(self.per_images - ones, int((self.labels == _NEGATIVE).sum()))
        left_by_label = {label: int((left == label).sum()) for label in (_POSITIVE, _NEGATIVE)}
        for label, wanted in ((_POSITIVE, ones), (_NEGATIVE, zeros)):
            if left_by_label[label] != wanted:
                return tail_bound.broken(
                    f"{left_by_label[label]} labels are {label}, but {wanted} must be", found=left_by_label[label]
                )
        return tail_bound.held("as many labels of each kind as there must be")


_CHOICE: Parameters = (("x", REQUIRED), ("count", 256))
_SUBSAMPLE: Parameters = (("input", REQUIRED), ("per_images", REQUIRED), ("positive_fraction", REQUIRED))


def random_choice(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_random_choice_with_mask``."""
    named = bound(api, _CHOICE, args, kwargs)
    return ChoiceProperty(named["x"], int(named["count"]))


def subsample(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_sub_sample``."""
    named = bound(api, _SUBSAMPLE, args, kwargs)
    return SubsampleProperty(named["input"], int(named["per_images"]), float(named["positive_fraction"]))
