"""Log probabilities of tokens in both runs: estimates of their divergence, and what a clipped objective drops.

``r`` is the ratio of a token's probabilities, the trainer's by the engine's. With tokens drawn by the engine the mean
of ``k1 = -log r`` and of ``k3 = r - 1 - log r`` estimate KL(engine, trainer) without bias, k3 with less variance and
never below 0 (J. Schulman, "Approximating KL Divergence", 2020). PPO drops the gradient of tokens whose ratio is
outside ``1 - clip`` to ``1 + clip`` on the side to which it would move them (arXiv 1707.06347).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pytest_msprobe.extensions.inference.recorded_rows import row_places
from pytest_msprobe.extensions.inference.run_values import LOGITS, RunValues
from pytest_msprobe.extensions.inference.token_errors import Numbers, aligned_rows
from pytest_msprobe.extensions.inference.token_layout import Integers
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs


@dataclass(frozen=True, slots=True)
class LogProbabilities:
    """Log probabilities of the same tokens in target (engine) and golden run (trainer).

    ``pairs`` are the numbers of the pairs of tokens of which each is the log probability; ``divergence`` is
    KL(engine, trainer) over the whole vocabulary at each, empty where logits are not recorded. ``source`` says where
    they are from; a token is ``ahead`` positions behind its pair: logits are of the token that follows.
    """

    pairs: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    target: Numbers
    golden: Numbers
    divergence: Numbers
    source: str
    ahead: int

    @property
    def log_ratio(self) -> Numbers:
        """Log r of each token."""
        return self.golden - self.target

    @property
    def k1(self) -> float:
        """The mean of -log r."""
        return float(np.mean(-self.log_ratio))

    @property
    def k3(self) -> float:
        """The mean of r - 1 - log r."""
        return float(np.mean(np.expm1(self.log_ratio) - self.log_ratio))

    def clipped(self, clip: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which tokens have a ratio outside of 1 - clip to 1 + clip."""
        ratio = np.exp(self.log_ratio)
        return ~((ratio >= 1 - clip) & (ratio <= 1 + clip))

    def worst(self, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return the places of the tokens whose log probabilities are furthest apart, the furthest first."""
        distance = np.nan_to_num(np.abs(self.log_ratio), nan=np.inf)
        return np.argsort(-distance, kind="stable")[:count]


def log_probabilities(target: RunValues, golden: RunValues, pairs: TokenPairs) -> LogProbabilities | None:
    """Return the log probabilities of the tokens that both runs noted, else of those that one noted, else of all.

    What a run did not note follows from its logits. A noted one is that of the token itself; logits give that of the
    next token. None where no token has one in both runs. Raises UnalignedError or DumpError as `aligned_rows` does.
    """
    is_noted = ~np.isnan(pairs.logprobs)
    both = np.flatnonzero(is_noted.all(axis=1))
    if len(both):
        own, other = pairs.logprobs[both].T
        return LogProbabilities(both, own, other, np.empty(0), "noted by both runs", 0)
    if is_noted.any():
        sides = [
            np.where(is_noted[:, side], pairs.logprobs[:, side], by_logits(run, places, pairs))
            for side, (run, places) in enumerate(((target, pairs.target), (golden, pairs.golden)))
        ]
        known = np.flatnonzero(is_noted.any(axis=1) & ~np.isnan(sides).any(axis=0))
        if len(known):
            noting, other_run = ("target", "golden run") if is_noted[known, 0].any() else ("golden run", "target")
            source = f"noted by the {noting}, from the logits of the {other_run}"
            return LogProbabilities(known, sides[0][known], sides[1][known], np.empty(0), source, 0)
    return _by_both_logits(target, golden, pairs)


def _by_both_logits(target: RunValues, golden: RunValues, pairs: TokenPairs) -> LogProbabilities | None:
    if not (target.has(LOGITS) and golden.has(LOGITS)):
        return None
    found: list[tuple[Integers, Numbers, Numbers, Numbers]] = []
    for numbers, mine, theirs in aligned_rows(LOGITS, target, golden, pairs):
        following = pairs.next_token[numbers]
        known = (following >= 0) & (following < mine.shape[1])
        if not known.any():
            continue
        kept = torch.from_numpy(np.flatnonzero(known))
        logs = [torch.log_softmax(each[kept], dim=1) for each in (mine, theirs)]
        place = torch.from_numpy(following[known])[:, None]
        # Of tokens that both rule out, 0 * (-inf + inf) is nothing.
        divergence = (logs[0].exp() * (logs[0] - logs[1])).nan_to_num(nan=0.0, posinf=np.inf).sum(dim=1)
        own, other = (each.gather(1, place)[:, 0].numpy() for each in logs)
        found.append((numbers[known], own, other, divergence.numpy()))
    if not found:
        return None
    pairs_of, own, other, whole = (np.concatenate(each) for each in zip(*found, strict=True))
    return LogProbabilities(pairs_of, own, other, whole, "from the logits", 1)


def by_logits(run: RunValues, places: Integers, pairs: TokenPairs) -> Numbers:
    """Return the log probability of each token by a run's logits of the token before it, NaN where it has none.

    ``places`` are pass and row of each pair's token in the run. Raises UnalignedError, DumpError.
    """
    found = np.full(len(pairs), np.nan)
    if not run.has(LOGITS):
        return found
    before = pairs.before
    wanted = np.flatnonzero(before >= 0)
    for number in np.unique(places[before[wanted], 0]):
        layout = run.passes[number].layout
        logits = run.rows(LOGITS, number, run.own_widths.get(LOGITS))
        if logits is None or layout is None:
            continue
        own = wanted[places[before[wanted], 0] == number]
        rows = row_places(len(logits), layout)[places[before[own], 1]]
        tokens = pairs.next_token[before[own]]
        held = (rows >= 0) & (tokens >= 0) & (tokens < logits.shape[1])
        for pair, row, token in zip(own[held], rows[held], tokens[held], strict=True):
            found[pair] = float(torch.log_softmax(logits[row].double(), dim=0)[token])
    return found
