"""Warm-up: thresholds learned from a training's first steps, by the CPU's results of the same calls."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

# Where a threshold begins, before anything is known of a dtype of an API.
_START = 2.05

#: Which threshold: of an API, in a dtype.
Kind = tuple[str, str]


@dataclass(slots=True)
class _Learning:
    threshold: float = _START
    is_learned: bool = False
    ratios: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})


class Preheat:
    """Learns, by API and dtype, how much a right result may change.

    In step 0 calls are counted. In each step from 1 to before ``steps``, some calls of each API are samples: their
    ratio, and whether the CPU in float32 agrees with the result that was not perturbed.
    """

    def __init__(self, steps: int, most: int) -> None:
        self.steps = steps
        self._most = most
        self._expected: Counter[str] = Counter()
        self._learning: dict[Kind, _Learning] = {}

    def count(self, api: str) -> None:
        """Count a call of step 0."""
        self._expected[api] += 1

    def is_sample(self, api: str, number: int, step: int) -> bool:
        """Return whether a call, by its number in the step, is one that the CPU is asked for."""
        calls = self._expected[api]
        if not calls or not 0 < step < self.steps:
            return False
        samples = min(math.ceil(calls / self.steps), self._most)
        # Calls are counted from 1, so the remainder 0 is the last.
        return number + 1 in {(self.steps * place + step) % calls or calls for place in range(samples)}

    def add(self, kind: Kind, ratio: float, *, is_consistent: bool) -> None:
        """Take a sample."""
        self._learning.setdefault(kind, _Learning()).ratios[is_consistent].append(ratio)

    def end_step(self) -> None:
        """Fit to a step's samples."""
        for learning in self._learning.values():
            good, bad = learning.ratios[True], learning.ratios[False]
            if not learning.is_learned and (good or bad):
                self._learn(learning, good, bad)
            learning.ratios = {True: [], False: []}

    def threshold(self, kind: Kind, least: float) -> float:
        """Return what is known of a threshold, which is at least the usual one."""
        learning = self._learning.get(kind)
        return least if learning is None else max(least, learning.threshold)

    @staticmethod
    def _learn(learning: _Learning, good: list[float], bad: list[float]) -> None:
        threshold = learning.threshold
        if not bad:
            widened = any(ratio > threshold for ratio in good)
            learning.threshold = 1 + (threshold - 1) * (2 if widened else 0.5)
        elif not good or max(good) < min(bad):
            learning.threshold = min(*bad, threshold)
            learning.is_learned = True
