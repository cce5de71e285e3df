"""Schedule of the micro batches that are computed twice: the same on all ranks, from numbers and a seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

from msprobe_hooks.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Schedule:
    """The watched steps: a ``share`` of them, or one of each ``every``; in a watched step one micro batch is watched.

    The first two steps are never watched: libraries still choose kernels in them, and DDP its buckets.

    Raises ConfigError where not exactly one of both is given, or a number is out of range.
    """

    share: float | None = None
    every: int | None = None
    micro_batches: int = 1
    first_step: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.share is None) == (self.every is None):
            problem = "replay_step() takes either share=, as 0.01, or every=, as 100"
            raise ConfigError("share", self.share, "", problem=problem)
        share = self.share
        if share is not None and not (type(share) in (int, float) and 0 < share <= 1):
            raise ConfigError("share", share, "a number above 0 and up to 1")
        if self.every is not None:
            _require_whole("every", self.every, 1)
        _require_whole("micro_batches", self.micro_batches, 1)
        _require_whole("first_step", self.first_step, 0)
        if type(self.seed) is not int:
            raise ConfigError("seed", self.seed, "a whole number")

    def step_of(self, call: int) -> int:
        """Return the step that a call belongs to, counted from 0."""
        return self.first_step + call // self.micro_batches

    def is_watched(self, call: int) -> bool:
        """Return whether a call, counted from 0, is computed twice."""
        step, micro_batch = self.step_of(call), call % self.micro_batches
        if step < self.first_step + 2:
            return False
        draw = random.Random(f"{self.seed} {step}")
        is_watched = draw.random() < (self.share or 0.0) if self.every is None else step % self.every == 0
        return is_watched and micro_batch == draw.randrange(self.micro_batches)


def _require_whole(key: str, value: object, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise ConfigError(key, value, f"a whole number from {lowest}")
