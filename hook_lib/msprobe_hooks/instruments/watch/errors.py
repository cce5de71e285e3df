"""What goes wrong while a training is watched is told once, and the training goes on."""

from __future__ import annotations

import logging
from collections import Counter
from types import TracebackType

_log = logging.getLogger("msprobe_hooks")


class Errors(Counter[str]):
    """How often something could not be watched, by what that is."""

    def note(self, where: str, error: BaseException) -> None:
        """Count what went wrong, and tell it the first time."""
        self[where] += 1
        if self[where] == 1:
            _log.warning("not watched: %s: %s: %s", where, type(error).__name__, error)

    def kept_from(self, where: str) -> KeptErrors:
        """Return a context, to be entered any number of times, that exceptions do not leave: they are noted."""
        return KeptErrors(self, where)

    def tell_counts(self) -> None:
        """Tell how often each came."""
        for where, count in self.items():
            _log.warning("not watched (%d x): %s", count, where)


class KeptErrors:
    """A context that notes exceptions in place of raising them; what ends a program is raised."""

    __slots__ = ("_errors", "_where")

    def __init__(self, errors: Errors, where: str) -> None:
        self._errors = errors
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._errors.note(self._where, error)
        return True
