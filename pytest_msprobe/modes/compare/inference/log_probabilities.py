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

from pytest_msprobe.modes.compare.inference.run_values import LOGITS, RunValues
from pytest_msprobe.modes.compare.inference.token_errors import Numbers, aligned_rows
from pytest_msprobe.modes.compare.inference.token_pairs import TokenPairs


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
    """Return the log probabilities that both runs noted, else those that their logits give; None where there are none.

    A noted one is that of the token itself; logits give that of the next token. Raises UnalignedError or DumpError as
    `aligned_rows` does.
    """
    noted = np.flatnonzero(~np.isnan(pairs.logprobs).any(axis=1))
    if len(noted):
        own, other = pairs.logprobs[noted].T
        return LogProbabilities(noted, own, other, np.empty(0), "noted by both runs", 0)
    if not (target.has(LOGITS) and golden.has(LOGITS)):
        return None
    found: list[tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], Numbers, Numbers, Numbers]] = []
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
