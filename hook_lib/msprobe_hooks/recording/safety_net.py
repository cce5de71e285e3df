"""The safety of a training that is observed: an error of the observing code is reported, and never raised into it.

A forked child is not observed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, TypeAlias

#: Takes what could not be observed, and why.
Note: TypeAlias = Callable[[str, Exception], None]

_live: weakref.WeakSet[Abandonable] = weakref.WeakSet()


class RaisedOnPurpose:
    """A base of exceptions that are raised to stop a training, as by a live check that has found a wrong call."""


class SafetyNet:
    """A context that notes the exceptions that are raised inside it and does not let them out.

    Those that are raised on purpose do leave it, as do KeyboardInterrupt, SystemExit and the like. It may be entered
    any number of times.
    """

    __slots__ = ("_note", "_where")

    def __init__(self, note: Note, where: str) -> None:
        self._note = note
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, RaisedOnPurpose):
            return False
        # A report that fails, as with a logging handler that raises, must not reach the training either.
        with suppress(Exception):
            self._note(self._where, error)
        return True


def guarded(hook: Callable[..., object], failed: Callable[[Exception], None]) -> Callable[..., None]:
    """Return a hook that does what another one does and never raises: ``failed`` gets its exception.

    It takes positional arguments alone, as frameworks give them, and returns None, by which a framework goes on
    with the values that it had.
    """

    def run(*args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            report(error, failed)

    return run


def report(error: Exception, failed: Callable[[Exception], None]) -> None:
    """Pass an exception to ``failed``, which must not raise another; one that is raised on purpose goes on."""
    if isinstance(error, RaisedOnPurpose):
        raise error
    with suppress(Exception):
        failed(error)


class Abandonable(Protocol):
    """Resource that a forked child must let go of."""

    def abandon(self) -> None:
        """Abandon everything; what is open belongs to the parent."""


def abandon_in_children(one: Abandonable) -> None:
    """Abandon something in every process that is forked off while it exists."""
    _live.add(one)


def _abandon_all() -> None:
    for one in list(_live):
        # One that fails must not keep the others from letting go.
        with suppress(Exception):
            one.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
