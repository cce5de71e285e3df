"""What was found of calls, kept for those that are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msprobe_hooks.extensions.fix.call_filter import UnraisedError

T = TypeVar("T")


class CallCache(Generic[T]):
    """What was found of calls, or why nothing was, by a key that calls share that are alike."""

    def __init__(self) -> None:
        self._known: dict[Any, T | UnraisedError] = {}

    def of(self, key: object, find: Callable[[], T]) -> T:
        """Return what ``find`` returns, called once per key; for a key that has no hash each time.

        Raises UnraisedError as ``find`` does.
        """
        try:
            known = self._known.get(key)
        except TypeError:
            return find()
        if known is None:
            try:
                known = find()
            except UnraisedError as error:
                known = type(error)(str(error))
            self._known[key] = known
        if isinstance(known, UnraisedError):
            # Never the one that is kept: once raised it would keep the tensors of its frames.
            raise type(known)(str(known))
        return known
