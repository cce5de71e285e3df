"""The time that checks may take: a share of what the training itself takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

# How many checks, or steps, the running mean of what they took goes back.
_REMEMBERED = 64


class Priced(Protocol):
    """Call whose checks cost about what the last one took."""

    seconds: float


class Budget:
    """At most a ``share`` of the training's own time; None for all the time that checks need.

    A check may begin while no time is owed, whatever it costs: a costly one would otherwise wait for ever while cheap
    ones spend what is left. What it takes too much is owed, and nothing is checked until the training has paid it back.
    ``spent`` and ``mean``, which is that of a check, are in seconds.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.share = share
        self.spent = self.mean = 0.0
        self._clock = clock
        self._began = clock()
        self._promised = 0.0
        self._looked = 0.0
        self._checks = self._steps = 0
        self._step_began = self._step_seconds = 0.0
        self._paid_back = self._began

    def is_in_debt(self) -> bool:
        """Return whether the training still has to pay for former checks. Asked at every call of a training."""
        return self._clock() < self._paid_back

    def saved(self) -> float:
        """Return the seconds that the training has saved up for checks since the last one.

        What it took to look for the next call to check is left out: otherwise a search that costs more than the share
        would never end. It is paid for after the next check.
        """
        return self._left() + self._looked

    def begin_step(self) -> None:
        """Count a step of the training that ends."""
        end = self._of_training()
        self._steps += 1
        self._step_seconds += (end - self._step_began - self._step_seconds) / min(self._steps, _REMEMBERED)
        self._step_began = end

    @property
    def saved_in_a_step(self) -> float:
        """The seconds that the training saves up in a step, where it says what a step is; else those of a check."""
        return (self.share or 0.0) * self._step_seconds if self._steps else self.mean

    def price(self, priced: Priced) -> float:
        """Return what the next check will about cost."""
        return priced.seconds or self.mean

    def promise(self, seconds: float) -> None:
        """Set time aside for a check that will come; a negative number gives it back."""
        self._promised += seconds
        self._settle()

    def spending(self, priced: Priced | None = None) -> _Spending:
        """Return a context whose time is counted, as that of a check if there is one to price."""
        return _Spending(self, priced)

    def note(self, seconds: float, priced: Priced | None) -> None:
        """Count time."""
        self.spent += seconds
        if priced is None:
            self._looked += seconds
            return
        priced.seconds = seconds
        self._checks += 1
        self.mean += (seconds - self.mean) / min(self._checks, _REMEMBERED)
        self._settle()

    def now(self) -> float:
        """Return the time in seconds."""
        return self._clock()

    def _left(self) -> float:
        if self.share is None:
            return 0.0
        return self.share * self._of_training() - self.spent - self._promised

    def _of_training(self) -> float:
        return self._clock() - self._began - self.spent

    def _settle(self) -> None:
        if self.share is not None:
            self._looked = 0.0
            self._paid_back = self._clock() - min(0.0, self._left()) / self.share


class _Spending:
    # Entered at every call, so that a generator would cost what it is to measure.
    __slots__ = ("_began", "_budget", "_priced")

    def __init__(self, budget: Budget, priced: Priced | None) -> None:
        self._budget = budget
        self._priced = priced

    def __enter__(self) -> None:
        self._began = self._budget.now()

    def __exit__(self, *_: object) -> None:
        self._budget.note(self._budget.now() - self._began, self._priced)
