"""The numbers of calls: a call that activation checkpointing makes again has the number that it had first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class Checkpoint(NamedTuple):
    """A call of activation checkpointing, which makes the calls inside it again.

    ``owner`` is an object that lives until then, ``depth`` distinguishes several at once of one
    owner, ``backward_pass`` the passes that repeat it, where the framework shows them.
    """

    owner: Any
    depth: int = 0
    backward_pass: Hashable = None


@dataclass
class _Region:
    """The numbers of the calls of each module inside a checkpoint, and how many were made again in each pass."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    repeated: dict[tuple[Hashable, str], int] = field(default_factory=lambda: defaultdict(int))


class CallNumbers:
    """Counts the calls of each module in a step, by its path."""

    def __init__(self) -> None:
        self._next: dict[str, int] = defaultdict(int)
        self._regions: WeakKeyDictionary[Any, dict[int, _Region]] = WeakKeyDictionary()

    def restart(self) -> None:
        """Count from 0 again, as in a new step; calls of the one before may still be made again."""
        self._next.clear()

    def first(self, path: str, checkpoint: Checkpoint | None) -> int:
        """Return the number of a call that is made for the first time, inside a checkpoint where one is given."""
        number = self._next[path]
        self._next[path] += 1
        if checkpoint is not None:
            regions = self._regions.setdefault(checkpoint.owner, {})
            region = regions.get(checkpoint.depth)
            if region is None or region.repeated:
                # What was made again is over: this is another call of the same owner.
                region = regions[checkpoint.depth] = _Region()
            region.numbers[path].append(number)
        return number

    def again(self, path: str, checkpoint: Checkpoint | None) -> int | None:
        """Return the number that a call had which is made again, None where it is not known."""
        region = None if checkpoint is None else self._regions.get(checkpoint.owner, {}).get(checkpoint.depth)
        if checkpoint is None or region is None or not region.numbers[path]:
            return None
        key = (checkpoint.backward_pass, path)
        place = region.repeated[key]
        region.repeated[key] += 1
        numbers = region.numbers[path]
        return numbers[place % len(numbers)]

    def latest(self, path: str) -> int:
        """Return the number of a module's latest call."""
        return max(0, self._next[path] - 1)
