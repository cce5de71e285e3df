"""Sink of live checks' results, which also keeps checks to one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from msprobe_hooks.errors import ConfigError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.errors import UserError
from pytest_msprobe.extensions.live_checks.observed_call import Stack
from pytest_msprobe.results.result import DirectionResult

# The check that is on in each process: a forked child has what its parent had, under its parent's number.
_checking: dict[int, object] = {}


class Sink(Protocol):
    """Takes one result after the other. ``failure`` says why it takes no more; the check then ends."""

    @property
    def failure(self) -> UserError | None:
        """Return what could not be written, None where all could."""

    def add(
        self, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None, stack: Stack
    ) -> None:
        """Take what came of one record; ``forward`` and ``backward`` are the call's records as JSON."""

    def close(self) -> None:
        """Close what is open."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Run the code inside as the only check of this process. Raises ConfigError where there is one already."""
    process, this = os.getpid(), object()
    if _checking.setdefault(process, this) is not this:
        raise ConfigError("live", "a check inside of another one", "one in a process at a time")
    try:
        yield
    finally:
        _checking.pop(process, None)
