"""Suppression of warnings in one thread of a process, in which others still warn."""

from __future__ import annotations

import threading
import warnings
from contextlib import AbstractContextManager


class _Here(threading.local):
    is_unwarned = False


_here = _Here()


class _WhileUnwarned(type):
    def __subclasscheck__(cls, _: type) -> bool:
        return _here.is_unwarned


class _Any(Warning, metaclass=_WhileUnwarned):
    """Replaces every warning of a thread that computes without."""


_FILTER = ("ignore", None, _Any, None, 0)


def suppress_warnings() -> AbstractContextManager[None]:
    """Ignore the warnings of this thread within the context that this returns.

    `warnings.catch_warnings` takes from other threads the warnings that they give meanwhile, and makes Python forget
    which ones were given once. So does every function that adds a filter; this one is put in place by hand, and stays.
    """
    return _Unwarned()


class _Unwarned(AbstractContextManager[None]):
    """The context of one thread. Not a generator's: every item has one."""

    def __enter__(self) -> None:
        filters: list[object] = warnings.filters  # type: ignore[assignment]
        if _FILTER not in filters[:1]:
            # One that others were put before does nothing there.
            filters[:] = [_FILTER, *filter(_FILTER.__ne__, filters)]
        self._former, _here.is_unwarned = _here.is_unwarned, True

    def __exit__(self, *_: object) -> None:
        _here.is_unwarned = self._former
