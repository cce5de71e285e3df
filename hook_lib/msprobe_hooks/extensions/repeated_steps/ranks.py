"""Agreement of a training's ranks: which steps all of them repeat, and whether one has seen a difference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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
        return self._watched_micro_batch(call) == call % self.micro_batches

    def is_watched_step(self, call: int) -> bool:
        """Return whether a call is computed twice in the step that this one belongs to."""
        return self._watched_micro_batch(call) is not None

    def _watched_micro_batch(self, call: int) -> int | None:
        step = self.step_of(call)
        if step < self.first_step + 2:
            return None
        draw = random.Random(f"{self.seed} {step}")
        is_watched = draw.random() < (self.share or 0.0) if self.every is None else step % self.every == 0
        return draw.randrange(self.micro_batches) if is_watched else None


def _require_whole(key: str, value: object, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise ConfigError(key, value, f"a whole number from {lowest}")


class Ranks:
    """The processes that compute a step together, and of these the ``replicas``, which have the same parameters.

    Replicas are given as a process group, or are those of a model inside DistributedDataParallel. In a process of its
    own nothing is exchanged. Raises ConfigError for a group that this process does not belong to.
    """

    def __init__(self, model: nn.Module, replicas: Any = None) -> None:
        #: Whether no other process takes part.
        self.is_alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
        if replicas is None and isinstance(model, DistributedDataParallel):
            replicas = model.process_group
        if replicas is not None and (self.is_alone or dist.get_rank(replicas) < 0):
            raise ConfigError("data_parallel_group", "a group", "a process group that this process belongs to")
        self._replicas = replicas
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    @property
    def compares_replicas(self) -> bool:
        """Return whether parameters are compared over ranks."""
        return self._replicas is not None

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return these numbers of all processes, by rank; each gives as many."""
        return [list(numbers)] if self.is_alone else self._gather(numbers, None)

    def any(self, condition: bool) -> bool:
        """Return whether a condition holds in any of the processes, each of which asks."""
        return any(numbers[0] for numbers in self.gather([condition]))

    def odd_replicas(self, digest: int) -> dict[int, int] | None:
        """Return the digest of each replica by its rank, None where all have the same."""
        if self._replicas is None:
            return None
        gathered = [numbers[0] for numbers in self._gather([digest], self._replicas)]
        return (
            None
            if len(set(gathered)) == 1
            else dict(zip(dist.get_process_group_ranks(self._replicas), gathered, strict=True))
        )

    def gather_replicas(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return these numbers of all replicas."""
        return self._gather(numbers, self._replicas)

    def _gather(self, numbers: Sequence[int], group: Any) -> list[list[int]]:
        device = torch.device("cpu") if "gloo" in dist.get_backend(group) else self._device
        own = torch.tensor(list(numbers), dtype=torch.int64, device=device)
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(gathered, own, group=group)
        return [of_rank.tolist() for of_rank in gathered]


def minority(digests: dict[int, int]) -> list[int]:
    """Return the ranks whose digest is not that of most; all ranks where no digest has more than half of them."""
    digest, count = Counter(digests.values()).most_common(1)[0]
    return [rank for rank, own in digests.items() if own != digest or count * 2 <= len(digests)]
