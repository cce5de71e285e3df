"""Computing without warnings, in one thread of a process whose own warnings go on."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class _Here(threading.local):
    is_unwarned = False


_here = _Here()


class _WhileUnwarned(type):
    def __subclasscheck__(cls, _: type) -> bool:
        return _here.is_unwarned


class _Any(Warning, metaclass=_WhileUnwarned):
    """Stands for every warning of a thread that computes without."""


_FILTER = ("ignore", None, _Any, None, 0)


@contextmanager
def unwarned() -> Iterator[None]:
    """Ignore the warnings of this thread.

    `warnings.catch_warnings` takes from other threads the warnings that they give meanwhile, and makes Python forget
    which ones were given once. So does every function that adds a filter; this one is put in place by hand, and stays.
    """
    filters: list[object] = warnings.filters  # type: ignore[assignment]
    if _FILTER not in filters[:1]:
        # One that others were put before does nothing there.
        filters[:] = [_FILTER, *filter(_FILTER.__ne__, filters)]
    former, _here.is_unwarned = _here.is_unwarned, True
    try:
        yield
    finally:
        _here.is_unwarned = former
