"""Log probabilities as programs read them from logits: as they are, and as sampling or a mistake changes them.

A reading takes `ScoredTokens` and returns one log probability for each. Sources of the definitions: temperature, top-k,
top-p, min-p and the repetition penalty are those of the processors of logits in transformers and of vLLM's sampler;
presence and frequency penalties and the logit bias are those of OpenAI's API.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

# Choices: the part of the tokens that a reading has to explain; how wide a range of numbers is said to be one.
_EXPLAINED = 0.99
_WIDE = 0.1
# So many numbers of tokens are tried for a top-k that only shows by the shares of a top-p.
_COUNTS = 200


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """Tokens with the logits that predict them, and the log probabilities that a program noted.

    Attributes:
        logits: float64, shape (tokens, vocabulary).
        tokens: Which token each row predicts, int64.
        noted: Its noted log probability, float64.
        earlier: For each row the tokens before it in its request, padded by one of them; shape (tokens, most).
            Rows without any, or whose earlier tokens are unknown, repeat -1.
        times: How often each of ``earlier`` was drawn before, counted over tokens with a noted value alone.
    """

    logits: Tensor
    tokens: Tensor
    noted: Tensor
    earlier: Tensor
    times: Tensor

    def __len__(self) -> int:
        return len(self.tokens)


Reading = Callable[[ScoredTokens], Tensor]
#: A reading and its words, behind "those of the logits as".
Named = tuple[str, Reading]


def plain(scored: ScoredTokens) -> Tensor:
    """Return the log probabilities by the logits as they are."""
    return _chosen(scored, scored.logits)


def with_temperature(scored: ScoredTokens, temperature: float) -> Tensor:
    """Return those of logits divided by a temperature."""
    return _chosen(scored, scored.logits / temperature)


def with_repetition_penalty(scored: ScoredTokens, penalty: float) -> Tensor:
    """Return those where logits of earlier tokens are divided by the penalty if positive, else multiplied by it."""
    return _penalized(scored, lambda logits, _: torch.where(logits > 0, logits / penalty, logits * penalty))


def with_presence_penalty(scored: ScoredTokens, penalty: float) -> Tensor:
    """Return those where the penalty is subtracted from logits of tokens that were drawn before."""
    return _penalized(scored, lambda logits, times: logits - penalty * (times > 0))


def with_frequency_penalty(scored: ScoredTokens, penalty: float) -> Tensor:
    """Return those where the penalty is subtracted from logits of tokens as often as they were drawn before."""
    return _penalized(scored, lambda logits, times: logits - penalty * times)


def with_bias(scored: ScoredTokens, biases: Mapping[int, float]) -> Tensor:
    """Return those where a number is added to the logits of some tokens."""
    logits = scored.logits.clone()
    for token, bias in biases.items():
        logits[:, token] += bias
    return _chosen(scored, logits)


def with_softcap(scored: ScoredTokens, cap: float) -> Tensor:
    """Return those of ``cap * tanh(logits / cap)``, as Gemma 2 has them."""
    return _chosen(scored, cap * torch.tanh(scored.logits / cap))


def of_columns(scored: ScoredTokens, columns: int) -> Tensor:
    """Return those over the first columns of the vocabulary alone."""
    return _chosen(scored, scored.logits[:, :columns])


def with_more_columns(scored: ScoredTokens, columns: float) -> Tensor:
    """Return those where so many columns of logit 0 pad the vocabulary."""
    whole = torch.logsumexp(scored.logits, dim=1)
    return _logit(scored, scored.logits) - torch.logaddexp(whole, torch.full_like(whole, math.log(columns)))


def of_rounded(scored: ScoredTokens, dtype: torch.dtype) -> Tensor:
    """Return those of logits that are rounded to a dtype."""
    return _chosen(scored, scored.logits.to(dtype).double())


def rounded(scored: ScoredTokens, dtype: torch.dtype) -> Tensor:
    """Return those that are rounded to a dtype, the logits too."""
    return of_rounded(scored, dtype).to(dtype).double()


def of_token(scored: ScoredTokens, token: int) -> Tensor:
    """Return those of one token in place of the tokens that follow."""
    return torch.log_softmax(scored.logits, dim=1)[:, token]


def of_most_probable(scored: ScoredTokens) -> Tensor:
    """Return that of the most probable token of each row."""
    return torch.log_softmax(scored.logits, dim=1).amax(dim=1)


def as_logit(scored: ScoredTokens) -> Tensor:
    """Return the logits themselves."""
    return _logit(scored, scored.logits)


def as_loss(scored: ScoredTokens) -> Tensor:
    """Return negated log probabilities."""
    return -plain(scored)


def as_probability(scored: ScoredTokens) -> Tensor:
    """Return the probabilities."""
    return plain(scored).exp()


def to_base(scored: ScoredTokens, base: float) -> Tensor:
    """Return logarithms to another base."""
    return plain(scored) / math.log(base)


#: A rule by which the most probable tokens are kept: from (temperature-scaled) logits in descending order, to how many.
Rule = Callable[[Tensor], Tensor]


def top_k(count: int) -> Rule:
    """Return the rule that keeps so many tokens."""
    return lambda ordered: torch.full((len(ordered),), min(count, ordered.shape[1]))


def top_p(share: float) -> Rule:
    """Return the rule that keeps tokens until their probabilities add up to a share."""
    return lambda ordered: _mass_before(ordered).lt(share).sum(dim=1).clamp(min=1)


def min_p(share: float) -> Rule:
    """Return the rule that keeps tokens of at least this share of the greatest probability."""
    return lambda ordered: (ordered - ordered[:, :1] >= math.log(share)).sum(dim=1)


def cut(scored: ScoredTokens, temperature: float, rules: Sequence[Rule]) -> Tensor:
    """Return those of logits divided by a temperature, over the tokens that all rules keep, each of the one before."""
    logits = scored.logits / temperature
    ordered = logits.sort(dim=1, descending=True).values
    columns = torch.arange(ordered.shape[1])
    for rule in rules:
        ordered = ordered.masked_fill(columns >= rule(ordered)[:, None], -math.inf)
    logit = _logit(scored, logits)
    least = ordered.masked_fill(ordered == -math.inf, math.inf).amin(dim=1)
    return (logit - torch.logsumexp(ordered, dim=1)).masked_fill(logit < least, -math.inf)


def _mass_before(ordered: Tensor) -> Tensor:
    probabilities = torch.softmax(ordered, dim=1)
    return probabilities.cumsum(dim=1) - probabilities


@dataclass(frozen=True, slots=True)
class Descending:
    """Logits in descending order, and the place of each row's token among them."""

    logits: Tensor
    rank: Tensor


def descending(scored: ScoredTokens) -> Descending:
    """Return the logits in descending order."""
    logits = scored.logits.sort(dim=1, descending=True).values
    return Descending(logits, (scored.logits > as_logit(scored)[:, None]).sum(dim=1))


def cuts(scored: ScoredTokens, ordering: Descending, limit: Tensor, temperature: float) -> Iterator[Named]:
    """Yield readings over the most probable tokens: how many each row kept says the number."""
    ordered, rank = ordering.logits / temperature, ordering.rank
    width = ordered.shape[1]
    log_sum = as_logit(scored) / temperature - scored.noted
    low, high = first_columns(torch.logcumsumexp(ordered, dim=1), log_sum, rank, limit)
    if not are_nearly_all(low <= high):
        return
    keeping = low <= high
    low, high, ordered = low[keeping], high[keeping], ordered[keeping]
    count = common_range(low, high)
    if count is not None and count[0] < width:
        yield _cut(f"with top-k {count[0]:g}{range_in_words(*count)}", temperature, top_k(int(count[0])))
    ratios = (ordered - ordered[:, :1]).exp()
    below = torch.nn.functional.pad(ratios, (0, 1)).gather(1, high[:, None])[:, 0]
    common = common_range(below, ratios.gather(1, low[:, None] - 1)[:, 0])
    if common is not None and common[1] > 0:
        share, words = _decimal(*common)
        yield _cut(f"with min-p {words}", temperature, min_p(share))
    mass = torch.softmax(ordered, dim=1).cumsum(dim=1)
    before, including = _mass(mass, low - 1), _mass(mass, high)
    common = common_range(before, including)
    if common is not None and common[0] < 1:
        share, words = _decimal(*common)
        yield _cut(f"with top-p {words}", temperature, top_p(share))
    elif count is None:
        yield from _cuts_by_both(mass, low, high, temperature)


def _cuts_by_both(mass: Tensor, low: Tensor, high: Tensor, temperature: float) -> Iterator[Named]:
    """Yield the reading of top-p after top-k, which is a share of what top-k keeps; that with the plainest numbers."""
    before, including = _mass(mass, low - 1), _mass(mass, high)
    fitting: list[tuple[int, str, float]] = []
    most = int(low.max())
    for count in range(most, min(most + _COUNTS, mass.shape[1])):
        whole = mass[:, count - 1]
        common = common_range(before / whole, torch.where(high >= count, 1.0, including / whole))
        if common is not None:
            share, words = _decimal(*common)
            fitting.append((count, words, share))
    if fitting:
        count, words, share = min(fitting, key=lambda one: (len(one[1]), one[0] % 10, one[0]))
        others = f" (other top-k from {fitting[0][0]} to {fitting[-1][0]} fit too)" if len(fitting) > 1 else ""
        words = f"with top-k {count} and top-p {words}{others}"
        yield _cut(words, temperature, top_k(count), top_p(share))


def _cut(words: str, temperature: float, *rules: Rule) -> Named:
    return words, partial(cut, temperature=temperature, rules=rules)


def first_columns(sums: Tensor, log_sum: Tensor, rank: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest number of first columns whose log sum is the given one, the token among them.

    ``sums`` grow along the columns. Where no number fits, the least is above the greatest.
    """
    low = torch.searchsorted(sums, (log_sum - limit)[:, None])[:, 0] + 1
    high = torch.searchsorted(sums, (log_sum + limit)[:, None], right=True)[:, 0]
    return torch.maximum(low, rank + 1), high


def _mass(mass: Tensor, count: Tensor) -> Tensor:
    """Return the probability of the first ``count`` tokens of each row, by the cumulative ``mass``; 1 for all."""
    padded = torch.nn.functional.pad(mass, (1, 0))
    padded[:, -1] = 1.0
    return padded.gather(1, count[:, None])[:, 0]


def common_range(low: Tensor, high: Tensor) -> tuple[float, float] | None:
    """Return the range that nearly all of the ranges have in common, None where they have none."""
    inside = torch.searchsorted(low.sort().values, low, right=True) - torch.searchsorted(high.sort().values, low)
    at = low[inside.argmax()]
    has_it = (low <= at) & (high >= at)
    return (float(at), float(high[has_it].min())) if are_nearly_all(has_it) else None


def range_in_words(first: float, last: float) -> str:
    """Return that any number of a range fits, empty where it is one number."""
    return f" (any of {first:.3g} to {last:.3g})" if last > first else ""


def _decimal(low: float, high: float) -> tuple[float, str]:
    """Return the shortest decimal number within a range, and it in words with the range where that is wide."""
    middle = (low + high) / 2
    number = next((short for digits in range(1, 12) if low < (short := round(middle, digits)) <= high), middle)
    return number, f"{number:g}" + (range_in_words(low, high) if high - low > _WIDE * number else "")


def are_nearly_all(fits: Tensor) -> bool:
    """Return whether so many of the tokens fit that the others are exceptions."""
    return float(fits.double().mean()) >= _EXPLAINED


def _logit(scored: ScoredTokens, logits: Tensor) -> Tensor:
    is_column = scored.tokens < logits.shape[1]
    place = scored.tokens.clamp(max=logits.shape[1] - 1)[:, None]
    return logits.gather(1, place)[:, 0].masked_fill(~is_column, -math.inf)


def _chosen(scored: ScoredTokens, logits: Tensor) -> Tensor:
    return _logit(scored, logits) - torch.logsumexp(logits, dim=1)


def _penalized(scored: ScoredTokens, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    is_earlier = scored.earlier >= 0
    places = scored.earlier.clamp(min=0)
    before = scored.logits.gather(1, places)
    changed = torch.where(is_earlier, change(before, scored.times), before)
    return _chosen(scored, scored.logits.scatter(1, places, changed))
