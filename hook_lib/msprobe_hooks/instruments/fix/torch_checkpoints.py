"""Activation checkpointing: a call that is made again must save what it saved before, in the same precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from msprobe_hooks.torch.recompute import running_checkpoint


class Checkpoints:
    """Has what was decided of the calls in a checkpoint decided again in the same order when they are made again."""

    def __init__(self) -> None:
        self._decided: WeakKeyDictionary[object, list[bool]] = WeakKeyDictionary()
        self._again: WeakKeyDictionary[object, Counter[Hashable]] = WeakKeyDictionary()

    def decide(self, decide: Callable[[], bool]) -> bool:
        """Return what ``decide`` says of the call that is being made, or said of it when it was made first."""
        running = running_checkpoint()
        if running is None:
            return decide()
        decided = self._decided.setdefault(running.frame, [])
        if running.backward_pass is None:
            decided.append(decide())
            return decided[-1]
        again = self._again.setdefault(running.frame, Counter())
        place = again[running.backward_pass]
        again[running.backward_pass] += 1
        return place < len(decided) and decided[place]
