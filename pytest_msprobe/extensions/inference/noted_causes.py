"""Findings on noted log probabilities: of which run's logits they are not, and why.

Causes of changed logits are in `logit_causes`; those that the values themselves show, such as other tokens or another
scale, are here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe_hooks.dump.names import coarser
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.inference import logit_readings as readings
from pytest_msprobe.extensions.inference.log_probabilities import by_logits, scored_tokens
from pytest_msprobe.extensions.inference.logit_causes import (
    LEAST_TOKENS,
    Cause,
    as_cause,
    distance,
    explains,
    is_explained,
    is_nearer,
    recognized,
)
from pytest_msprobe.extensions.inference.recorded_weights import UNIT_ROUNDOFF
from pytest_msprobe.extensions.inference.run_values import LOGITS, RunValues
from pytest_msprobe.extensions.inference.token_errors import Numbers
from pytest_msprobe.extensions.inference.token_layout import Integers, UnalignedError
from pytest_msprobe.extensions.inference.token_pairs import SIDES, SideName, TokenPairs

# Log probabilities of the same logits differ by roundings of their dtype, and by a sum over the vocabulary: by 3e-5
# over 151 936 tokens in float32.
_ROUNDINGS = 8.0
_SUMMED = 1e-3
# A choice: more than one in so many is no chance. What changes them, as a temperature or a shift, changes most.
_OTHER_TOKENS = 10
_PROCESSED = ": processed against raw"
_FARTHEST = 64  # tokens that values are shifted by
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class NotedValues:
    """Noted log probabilities, and those that the tokens should have.

    Attributes:
        noted: float64, shape (tokens,).
        reference: The log probability that each should have.
        limit: How far rounding alone may move each.
        request: The number of each token's request.
        position: Its position.
        names: The names of the requests.
    """

    noted: Numbers
    reference: Numbers
    limit: Numbers
    request: Integers
    position: Integers
    names: Sequence[str]

    def at(self, own: Integers, shift: int) -> tuple[Tensor, Tensor]:
        """Return how far values of one request are from the reference so many tokens before each, and the limits."""
        _, late, source = np.intersect1d(self.position[own], self.position[own] + shift, return_indices=True)
        noted, reference = self.noted[own[late]], self.reference[own[source]]
        return distance(torch.from_numpy(reference), torch.from_numpy(noted)), torch.from_numpy(self.limit[own[source]])


@dataclass(frozen=True, slots=True)
class Finding:
    """Log probabilities of a run that are not those of ``basis``, and what explains them; ``line`` says it."""

    side: SideName
    basis: str
    cause: Cause | None
    line: str

    @property
    def is_processed(self) -> bool:
        """Return whether the values are those of logits that were changed, as sampling does."""
        return self.cause is not None and self.cause.words.startswith("with ")


@dataclass(frozen=True, slots=True)
class _Basis:
    """A run with logits: its own, or of the other run, against which noted values are held."""

    words: str
    run: RunValues
    places: Integers
    logprobs: Numbers
    dtype: str


def found_causes(target: RunValues, golden: RunValues, pairs: TokenPairs) -> Sequence[Finding]:
    """Return how the log probabilities that each run noted differ from those of logits, or the target's if none did.

    They are held against the run's own logits, else against those of the other run, else against what that one noted.
    """
    dtypes = [run.dtype(name) for run in (target, golden) for name in (LOGITS, "norm") if run.has(name)]
    coarsest = reduce(coarser, filter(None, dtypes), "float32")
    bases = []
    for side, run, places in ((0, target, pairs.target), (1, golden, pairs.golden)):
        # Logits that cannot be read are said with the log probabilities.
        with suppress(UnalignedError, DumpError):
            logprobs = by_logits(run, places, pairs)
            bases.append((side, _Basis(f"the {SIDES[side]}'s logits", run, places, logprobs, coarsest)))
    noting = [side for side in (0, 1) if not np.isnan(pairs.logprobs[:, side]).all()]
    if not noting and len(bases) == 2:
        finding = _finding(
            SIDES[0], "the log probabilities by the target's logits", bases[0][1].logprobs, bases[1][1], pairs
        )
        return [finding] if finding is not None and finding.cause is not None else []
    findings: list[Finding | None] = []
    plain: list[SideName] = []
    for side in noting:
        noted, words = pairs.logprobs[:, side], f"the log probabilities that the {SIDES[side]} noted"
        own = [basis for of, basis in bases if of == side and _count(noted, basis) >= LEAST_TOKENS]
        other = [basis for of, basis in bases if of != side and _count(noted, basis) >= LEAST_TOKENS]
        if own:
            dtype = own[0].run.dtype(LOGITS) or "float32"
            basis = replace(own[0], words="its own logits", dtype=dtype)
            finding = _finding(SIDES[side], words, noted, basis, pairs) or _unexplained(SIDES[side], noted, basis)
            plain += [] if finding is not None else [SIDES[side]]
            findings.append(finding)
        elif other:
            findings.append(_finding(SIDES[side], words, noted, other[0], pairs))
        elif side == 0 and len(noting) == 2:
            findings.append(_of_both_noted(pairs, coarsest))
    return _joined([finding for finding in findings if finding is not None], plain)


def _joined(findings: Sequence[Finding], plain: Sequence[SideName]) -> Sequence[Finding]:
    """Return findings, with one line where both runs have the same cause, and which run noted ``plain`` values."""
    if plain:
        also = f"; those of the {plain[0]} are of its logits as they are"
        return [replace(one, line=one.line + also + _PROCESSED * one.is_processed) for one in findings]
    words = [finding.cause.words for finding in findings if finding.cause is not None]
    if len(words) == 2 and words[0] == words[1] and findings[0].is_processed:
        line = f"both runs noted log probabilities of processed logits, {words[0]}"
        return [replace(findings[0], line=line), replace(findings[1], line="")]
    return findings


def _finding(side: SideName, words: str, noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Finding | None:
    is_comparable = ~np.isnan(noted + basis.logprobs)
    values = _values(noted, basis.logprobs, is_comparable, basis.dtype, pairs)
    cause = recognized_by_values(values)
    if cause is None and not _is_plain(values):
        with suppress(UnalignedError, DumpError):
            cause = _by_other_rows(noted, basis, pairs) or _by_logits(noted, basis, pairs)
    if cause is None:
        return None
    return Finding(side, basis.words, cause, f"{words} are those of {basis.words} as {cause}")


def _by_logits(noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Cause | None:
    scored = scored_tokens(basis.run, basis.places, pairs, noted)
    if scored is None:
        return None
    return recognized(scored, torch.from_numpy(_limit(readings.plain(scored).numpy(), basis.dtype)))


def _by_other_rows(noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Cause | None:
    """Return whether each value is by the logits of the token itself, as where labels are not shifted."""
    reference = by_logits(basis.run, basis.places, pairs, is_shifted=False)
    both = ~np.isnan(noted + basis.logprobs)
    values = _values(noted, reference, both & ~np.isnan(reference), basis.dtype, pairs)
    if len(values.noted) < max(LEAST_TOKENS, both.sum() / 2) or not _is_plain(values):
        return None
    before = distance(torch.from_numpy(basis.logprobs[both]), torch.from_numpy(noted[both]))
    after = distance(torch.from_numpy(values.reference), torch.from_numpy(values.noted))
    words = "read one row late: by the logits of each token, not by those of the token before it"
    return as_cause(words, before, after, torch.from_numpy(values.limit))


def _of_both_noted(pairs: TokenPairs, dtype: str) -> Finding | None:
    """Return how the target's noted values differ from the golden run's, where neither has logits."""
    noted, reference = pairs.logprobs.T
    values = _values(noted, reference, ~np.isnan(noted + reference), dtype, pairs)
    cause = recognized_by_values(values)
    if cause is None:
        return None
    line = f"the log probabilities that the target noted are those that the golden run noted, as {cause}"
    return Finding(SIDES[0], "the values that the golden run noted", cause, line)


def _unexplained(side: SideName, noted: Numbers, basis: _Basis) -> Finding | None:
    """Return that noted values are not those of the run's own logits, where no single cause explains them."""
    comparable = ~np.isnan(noted + basis.logprobs)
    apart = np.abs(noted[comparable] - basis.logprobs[comparable])
    # NaN, as of two infinities, is no difference.
    others = int((apart > _limit(basis.logprobs[comparable], basis.dtype)).sum())
    if others * _OTHER_TOKENS <= len(apart):
        return None
    line = (
        f"the log probabilities that the {side} noted are not those of its own logits ({others} of "
        f"{counted(len(apart), 'token')}, median difference {np.nanmedian(apart):.2e}), and none of the known causes "
        "explains them: temperature, cuts, penalties, a logit bias, rounding, a shift"
    )
    return Finding(side, basis.words, None, line)


def _count(noted: Numbers, basis: _Basis) -> int:
    return int((~np.isnan(noted + basis.logprobs)).sum())


def _limit(logprobs: Numbers, dtype: str) -> Numbers:
    return _SUMMED + _ROUNDINGS * UNIT_ROUNDOFF[dtype] * np.maximum(np.abs(logprobs), 1)


def _values(noted: Numbers, reference: Numbers, which: NDArray[np.bool_], dtype: str, pairs: TokenPairs) -> NotedValues:
    limit = _limit(reference[which], dtype)
    return NotedValues(
        noted[which], reference[which], limit, pairs.request[which], pairs.position[which], pairs.requests
    )


def _is_plain(values: NotedValues) -> bool:
    apart = distance(torch.from_numpy(values.reference), torch.from_numpy(values.noted))
    return is_explained(apart, torch.from_numpy(values.limit))


def recognized_by_values(values: NotedValues) -> Cause | None:
    """Return what explains noted values where only log probabilities of the same tokens are known, None as above."""
    noted, reference, limit = (torch.from_numpy(one) for one in (values.noted, values.reference, values.limit))
    before = distance(reference, noted)
    if len(noted) < LEAST_TOKENS or is_explained(before, limit):
        return None
    for words, changed in (
        ("losses, with the sign changed", -reference),
        ("probabilities, not their logarithms", reference.exp()),
        ("logarithms to base 2", reference / math.log(2)),
        ("logarithms to base 10", reference / math.log(10)),
        ("rounded to bfloat16", reference.bfloat16().double()),
        ("rounded to float16", reference.half().double()),
    ):
        after = distance(changed, noted)
        if explains(before, after, limit):
            return as_cause(words, before, after, limit)
    return _shifted(values, before)


def _shifted(values: NotedValues, before: Tensor) -> Cause | None:
    """Return by how many tokens values are noted late or early: all by as many, or those of each request."""
    requests = [np.flatnonzero(values.request == request) for request in np.unique(values.request)]
    shifts = [shift for shift in range(-_FARTHEST, _FARTHEST + 1) if shift]
    fitting: list[tuple[float, int, Tensor, Tensor]] = []
    for shift in shifts:
        apart, limit = (torch.cat(parts) for parts in zip(*(values.at(own, shift) for own in requests), strict=True))
        if len(apart) >= max(LEAST_TOKENS, len(before) / 2) and is_explained(apart, limit):
            fitting.append((float(apart.mean()), shift, apart, limit))
    if fitting:
        _, shift, apart, limit = min(fitting, key=lambda one: one[:2])
        return as_cause(f"noted {_late(shift)}", before, apart, limit) if is_nearer(before, apart) else None
    return _padded(values, requests, before)


def _padded(values: NotedValues, requests: Sequence[Integers], before: Tensor) -> Cause | None:
    """Return a shift of each request by its own number of tokens, as positions that count padding have it."""
    words: list[str] = []
    distances: list[tuple[Tensor, Tensor]] = []
    for own in requests:
        if len(own) < LEAST_TOKENS:
            continue
        fitting = []
        for shift in range(-_FARTHEST, _FARTHEST + 1):
            apart, limit = values.at(own, shift)
            if len(apart) >= max(LEAST_TOKENS - 1, len(own) / 2) and bool((apart <= limit).all()):
                fitting.append((float(apart.mean()), shift, apart, limit))
        if not fitting:
            return None
        _, shift, apart, limit = min(fitting, key=lambda one: one[:2])
        distances.append((apart, limit))
        words.append(f"request {values.names[values.request[own[0]]]} {_late(shift)}" if shift else "")
    if not any(words):
        return None
    apart, limit = (torch.cat(parts) for parts in zip(*distances, strict=True))
    text = f"noted at positions that count padding: {listed(filter(None, words), _SHOWN)}"
    return as_cause(text, before, apart, limit) if is_nearer(before, apart) else None


def _late(shift: int) -> str:
    count = "one token" if abs(shift) == 1 else f"{abs(shift)} tokens"
    return f"{count} {'late' if shift > 0 else 'early'}"
