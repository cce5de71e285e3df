"""APIs whose random results follow the values of their input: choices, counts and permutations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# docs/screening.md, on these and on the roundings that are allowed below.
_BINS = 10
_CATEGORY_LEVELS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
# 1 / 15! is below the probability with which a test may be wrong
_NEVER_SORTED = 15
# Numbers of a permutation that are compared with each other, and groups of them: 2^20 comparisons.
_GROUP, _GROUPS = 64, 256


@dataclass(frozen=True, slots=True)
class BernoulliProperty(PassesNoGradient):
    """Each element is 1 with its own probability ``p`` and 0 otherwise."""

    form: Form
    p: Tensor

    def check_forward(self, output: Any) -> Verdict:
        """Judge the values and, among elements of like probability, the share of ones."""
        malformed = self.form.check(output)
        if malformed:
            return malformed
        y = tensors(output)[0].double().flatten()
        p = self.p.double().broadcast_to(tensors(output)[0].shape).flatten()
        wrong = int(((y != 0) & (y != 1)).sum())
        if wrong:
            return tail_bound.broken(f"{wrong} of {y.numel()} elements are neither 0 nor 1", wrong=wrong)
        impossible = int((((p == 0) & (y == 1)) | ((p == 1) & (y == 0))).sum())
        if impossible:
            return tail_bound.broken(f"{impossible} elements have a probability of 0", impossible=impossible)
        bins = (p * _BINS).long().clamp(0, _BINS - 1)
        size = torch.bincount(bins, minlength=_BINS)
        ones = torch.bincount(bins, weights=y, minlength=_BINS)
        expected = torch.bincount(bins, weights=p, minlength=_BINS)
        slack = rounding(self.p.dtype)
        verdicts = [
            tail_bound.share("share of ones", (int(ones[i]),) * 2, int(size[i]), float(expected[i] / size[i]), slack)
            for i in range(_BINS)
            if size[i]
        ]
        verdicts += [verdict for drawn in self.choices(output) for verdict in judged(drawn)]
        return tail_bound.decided(verdicts)

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which elements are 1."""
        return [choices(tensors(output)[0] == 1, self.p, rounding(self.p.dtype))]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        return choice_exponent(self.p.double().broadcast_to(tensors(output)[0].shape))


@dataclass(frozen=True, slots=True)
class MultinomialProperty(PassesNoGradient):
    """``count`` indices of each row of ``weights``, by weight."""

    weights: Tensor
    count: int
    replacement: bool

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, range, weights of 0, repetitions and, where draws are independent, their shares."""
        malformed = Form((*self.weights.shape[:-1], self.count), torch.int64).check(output)
        if malformed:
            return malformed
        drawn = tensors(output)[0].reshape(-1, self.count)
        weights = self.weights.double().reshape(-1, self.weights.shape[-1])
        outside = int(((drawn < 0) | (drawn >= weights.shape[1])).sum())
        if outside:
            return tail_bound.broken(f"{outside} indices are outside of [0, {weights.shape[1]})", outside=outside)
        weightless = int((weights.gather(1, drawn) == 0).sum())
        if weightless:
            return tail_bound.broken(f"{weightless} drawn elements have a weight of 0", weightless=weightless)
        if not self.replacement:
            ordered = drawn.sort(-1).values
            repeats = int((ordered[:, 1:] == ordered[:, :-1]).sum())
            if repeats:
                return tail_bound.broken(f"{repeats} indices repeat in draws without replacement", repeats=repeats)
            if self.count > 1:
                return tail_bound.held("draws without replacement: range, weights of 0 and repetitions are judged")
        shares = weights / weights.sum(-1, keepdim=True)
        verdicts = [*_category_shares(drawn, shares, self._slack), *_shares_of_drawn(drawn, shares, self._slack)]
        return tail_bound.decided([*verdicts, *(test for bits in self.choices(output) for test in judged(bits))])

    @property
    def _slack(self) -> float:
        return rounding(self.weights.dtype) + 1e-9

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which draws are of the lower half of their row; none of draws without replacement."""
        if not self.replacement and self.count > 1:
            return []
        weights = self.weights.detach().double().reshape(-1, self.weights.shape[-1])
        drawn = tensors(output)[0].reshape(len(weights), self.count)
        return [_lower(drawn, weights / weights.sum(-1, keepdim=True), self._slack)]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        shares = self.weights.detach().double().reshape(-1, self.weights.shape[-1])
        equal = (shares / shares.sum(-1, keepdim=True)).square().sum(-1)
        independent = self.count if self.replacement else min(1, self.count)
        return float(-equal.clamp(max=1.0).log().sum()) * independent


def _shares_of_drawn(drawn: Tensor, shares: Tensor, slack: float) -> Iterator[Verdict]:
    """Judge by how large the shares of the drawn categories are in their own rows.

    A draw by share has one of sum(share^2) on average, with the variance sum(share^3) - sum(share^2)^2. Where sums of
    shares up to a category may be off by ``slack``, the average may by twice that.
    """
    if not drawn.numel():
        return
    squares = shares.square().sum(-1)
    variance = float((shares.pow(3).sum(-1) - squares.square()).mean().clamp(min=0.0))
    found, expected = float(shares.gather(1, drawn).mean()), float(squares.mean())
    reach = float(shares.max())
    yield tail_bound.bounded_mean(
        "mean share of the drawn categories", found, drawn.numel(), expected, variance, reach, 2 * slack + 1e-12
    )


def _lower(drawn: Tensor, shares: Tensor, slack: float) -> Choices:
    """Return which draws (rows, draws) are of the first categories of their row, whose ``shares`` make about half."""
    up_to = shares.cumsum(-1)
    last = (up_to - 0.5).abs().argmin(-1, keepdim=True)
    return choices(drawn <= last, up_to.gather(1, last).clamp(max=1.0), slack, what="lower")


def _category_shares(drawn: Tensor, shares: Tensor, slack: float) -> list[Verdict]:
    """Judge how often categories up to some were drawn; ``drawn`` (rows, draws), ``shares`` (rows, categories)."""
    if not drawn.numel():
        return []
    up_to = shares.cumsum(-1).mean(0)
    thresholds = sorted({int((up_to < level).sum()) for level in _CATEGORY_LEVELS})
    verdicts = []
    for threshold in thresholds:
        if threshold < len(up_to):
            count = int((drawn <= threshold).sum())
            what = f"share of indices up to {threshold}"
            probability = min(1.0, float(up_to[threshold]))
            verdicts.append(tail_bound.share(what, (count, count), drawn.numel(), probability, slack))
    return verdicts


@dataclass(frozen=True, slots=True)
class PermutationProperty:
    """The numbers below ``n``, each once."""

    n: int
    dtype: torch.dtype

    def check_forward(self, output: Any) -> Verdict:
        """Judge that each number is there, and not all in their places."""
        malformed = Form((self.n,), self.dtype).check(output)
        if malformed:
            return malformed
        y = tensors(output)[0].double()
        numbers = torch.arange(self.n, dtype=torch.float64)
        missing = int((y.sort().values != numbers).sum())
        if missing:
            return tail_bound.broken(f"not a permutation of the numbers below {self.n}")
        if self.n >= _NEVER_SORTED and bool((y == numbers).all()):
            return tail_bound.broken(f"all of {self.n} numbers are in their places")
        verdicts = [verdict for drawn in self.choices(output) for verdict in judged(drawn)]
        return tail_bound.decided([tail_bound.held("a permutation"), *verdicts])

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return of which numbers at most half of those that follow them in their group are smaller.

        How many are is uniform, and independent of all others (Lehmer's code). Groups are of neighbours, and of numbers
        that are as far apart as they can be.
        """
        size = min(self.n, _GROUP)
        groups = min(self.n // size, _GROUPS) if size > 1 else 0
        if not groups:
            return []
        y, behind = tensors(output)[0].detach(), torch.arange(size - 1, 0, -1)
        spaced = y[: self.n // size * size].view(size, -1)[:, :groups].T
        codes = []
        for group in (y[: groups * size].view(groups, size), spaced):
            smaller = (group[:, None, :] < group[:, :, None]).triu(1).sum(-1)[:, :-1]
            half = (behind + 1) // 2
            codes.append(choices(smaller < half, half / (behind + 1).double(), what="early"))
        return codes

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        return math.lgamma(self.n + 1)

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Return nothing: there is no input to differentiate."""
        return None


@dataclass(frozen=True, slots=True)
class PoissonProperty(PassesNoGradient):
    """Each element is a Poisson number of its own ``rates``."""

    rates: Tensor

    def check_forward(self, output: Any) -> Verdict:
        """Judge that they are counts, their sum, and how many stay below rates and standard deviations."""
        malformed = Form(tuple(self.rates.shape), self.rates.dtype).check(output)
        if malformed:
            return malformed
        y, rates = tensors(output)[0].double().flatten(), self.rates.double().flatten()
        wrong = int((~(y >= 0) | (y != y.floor())).sum())
        if wrong:
            return tail_bound.broken(f"{wrong} of {y.numel()} elements are not counts", wrong=wrong)
        impossible = int(((rates == 0) & (y != 0)).sum())
        if impossible:
            return tail_bound.broken(f"{impossible} elements of rate 0 are not 0", impossible=impossible)
        verdicts = [verdict for drawn in self.choices(output) for verdict in judged(drawn)]
        y, rates = y[rates > 0], rates[rates > 0]
        if not len(y):
            return tail_bound.held("nothing was drawn")
        eps = rounding(self.rates.dtype)
        moved = torch.where(y * eps >= 1, y * eps, 0.0)
        verdicts.append(tail_bound.poisson_sum(float(y.sum()), float(rates.sum()), eps))
        for deviations in (-1, 0, 1):
            threshold = (rates + deviations * rates.sqrt()).floor()
            below = torch.special.gammaincc((threshold + 1).clamp(min=1e-300), rates)
            probability = float(torch.where(threshold < 0, 0.0, below).mean())
            count = int((y + moved <= threshold).sum()), int((y - moved <= threshold).sum())
            what = f"share of values up to {deviations} standard deviations from the rate"
            verdicts.append(tail_bound.share(what, count, len(y), probability, eps))
        return tail_bound.decided(verdicts)

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which counts are up to their rates, of those that no rounding moves."""
        rates = self.rates.detach().double()
        chance = torch.special.gammaincc(rates.floor() + 1, rates)
        legible = (rates > 0) & (rates < 1 / torch.finfo(self.rates.dtype).eps)
        return [choices(tensors(output)[0] <= rates.floor(), chance, rounding(self.rates.dtype), legible, what="lower")]

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        rates = self.rates.detach().double().flatten()
        mode = rates.floor()
        most_likely = torch.xlogy(mode, rates) - rates - (mode + 1).lgamma()
        # counts that the dtype rounds to the same number
        merged = (rates * rounding(self.rates.dtype)).clamp(min=1.0).log()
        return float(-(most_likely + merged)[rates > 0].clamp(max=0.0).sum())


@dataclass(frozen=True, slots=True)
class GumbelProperty:
    """Rows along ``dim`` are relaxed one-hot vectors, whose largest entry is drawn by softmax(logits)."""

    logits: Tensor
    tau: float
    hard: bool
    dim: int

    def check_forward(self, output: Any) -> Verdict:
        """Judge that rows are distributions, one-hot if ``hard``, and how often entries are the largest."""
        malformed = Form(tuple(self.logits.shape), self.logits.dtype).check(output)
        if malformed:
            return malformed
        y = self._rows(tensors(output)[0].double())
        limits = torch.finfo(self.logits.dtype)
        tolerance = 8 * limits.eps + y.shape[-1] * limits.smallest_normal
        wrong = int((~((y.sum(-1) - 1).abs() <= tolerance) | (y < -tolerance).any(-1)).sum())
        if wrong:
            return tail_bound.broken(f"{wrong} of {len(y)} rows are not distributions", wrong=wrong)
        if self.hard:
            soft = int(((y > tolerance) & (y < 1 - tolerance)).any(-1).sum())
            if soft:
                return tail_bound.broken(f"{soft} of {len(y)} rows are not one-hot", soft=soft)
        if not y.numel():
            return tail_bound.held("no elements")
        drawn, shares, slack = self._drawn(output)
        verdicts = _category_shares(drawn, shares, slack)
        return tail_bound.decided([*verdicts, *(test for bits in self.choices(output) for test in judged(bits))])

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return which rows have their largest entry in the lower half."""
        return [_lower(*self._drawn(output))] if self.logits.numel() else []

    def _drawn(self, output: Any) -> tuple[Tensor, Tensor, float]:
        """Return the place of the largest entry of each row, the share of each place, and how far these may be off."""
        y = self._rows(tensors(output)[0].detach())
        ties = float(((y == y.max(-1, keepdim=True).values).sum(-1) > 1).double().mean())
        shares = self._rows(self.logits.detach()).double().softmax(-1)
        return y.argmax(-1, keepdim=True), shares, ties + 4 * torch.finfo(self.logits.dtype).eps + 1e-9

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        shares = self._rows(self.logits.detach()).double().softmax(-1)
        return float(-shares.square().sum(-1).clamp(max=1.0).log().sum())

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Judge that gradients sum to zero along ``dim``, as those of every softmax."""
        found, incoming = tensors(grad_inputs), tensors(grad_outputs)
        if not found or not incoming:
            return None
        gradients = self._rows(found[0].double())
        largest = self._rows(incoming[0].double()).abs().amax(-1)
        rounded = 8 * torch.finfo(found[0].dtype).eps * gradients.shape[-1] / self.tau
        off = int((~(gradients.sum(-1).abs() <= rounded * largest + 1e-30)).sum())
        if off:
            return tail_bound.broken(f"the gradients of {off} rows do not sum to zero", rows=off)
        return tail_bound.held("the gradients of every row sum to zero")

    def _rows(self, values: Tensor) -> Tensor:
        """Return the rows along ``dim``, as (rows, entries); a scalar is a row of one entry."""
        rows = values.movedim(self.dim, -1)
        return rows.reshape(-1, rows.shape[-1] if rows.dim() else 1)


_BERNOULLI: Parameters = (("input", REQUIRED), ("p", None))
_BERNOULLI_IN_PLACE: Parameters = (("input", REQUIRED), ("p", 0.5))
_MULTINOMIAL: Parameters = (("input", REQUIRED), ("num_samples", REQUIRED), ("replacement", False))
_RANDPERM: Parameters = (("n", REQUIRED),)
_POISSON: Parameters = (("input", REQUIRED),)
_GUMBEL: Parameters = (("logits", REQUIRED), ("tau", 1.0), ("hard", False), ("eps", 1e-10), ("dim", -1))


def bernoulli(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``bernoulli``, by its input's values or by ``p``, and ``bernoulli_``."""
    given = bound(api, _BERNOULLI_IN_PLACE if api.endswith("_") else _BERNOULLI, args, kwargs)
    x, p = given["input"], given["p"]
    probability = x if p is None else torch.as_tensor(p, dtype=None if isinstance(p, torch.Tensor) else torch.float64)
    return BernoulliProperty(Form(tuple(x.shape), x.dtype), probability)


def multinomial(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``multinomial``."""
    given = bound(api, _MULTINOMIAL, args, kwargs)
    return MultinomialProperty(given["input"], int(given["num_samples"]), bool(given["replacement"]))


def randperm(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``randperm``."""
    return PermutationProperty(int(bound(api, _RANDPERM, args, kwargs)["n"]), kwargs.get("dtype") or torch.int64)


def poisson(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``poisson``."""
    return PoissonProperty(bound(api, _POISSON, args, kwargs)["input"])


def gumbel_softmax(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``gumbel_softmax``."""
    given = bound(api, _GUMBEL, args, kwargs)
    return GumbelProperty(given["logits"], float(given["tau"]), bool(given["hard"]), int(given["dim"]))
