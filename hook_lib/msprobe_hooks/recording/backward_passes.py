"""Work collected during a backward pass, and finished when that pass ends, complete or not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msprobe_hooks.recording.safety_net import guarded


class Engine(Protocol):
    """A framework's autograd engine."""

    def running_pass(self) -> int:
        """Return the number that the backward pass which runs in this thread has to itself."""

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the backward pass that is running has ended."""


class Finishing(Protocol):
    """Record that is put together during a backward pass."""

    def finish(self) -> None:
        """Write what came so far; a second time does nothing."""

    def fail(self, error: Exception) -> None:
        """Report that it could not be written."""


class BackwardPasses:
    """The backward passes that are running, of all threads, and what waits for their ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[int, Finishing]] = {}

    def at_end(self, one: Finishing) -> None:
        """Finish something when the backward pass that is running ends."""
        number = self._engine.running_pass()
        waiting = self._waiting.get(number)
        # A pass that is known does not end while a gradient goes by in it.
        if waiting is not None:
            waiting[id(one)] = one
            return
        with self._lock:
            is_first = number not in self._waiting
            self._waiting.setdefault(number, {})[id(one)] = one
        if is_first:
            self._engine.at_end_of_pass(partial(self._finish, number))

    def forget(self) -> None:
        """Drop all that waits."""
        with self._lock:
            self._waiting.clear()

    def abandon(self) -> None:
        """Abandon everything in a forked child, where the lock may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
        self._waiting.clear()

    def _finish(self, number: int) -> None:
        with self._lock:
            waiting = self._waiting.pop(number, {})
        for one in waiting.values():
            guarded(one.finish, one.fail)()
