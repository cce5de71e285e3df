"""Calls in another precision, of any framework: what they are raised to, and why some are left as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

#: What calls are raised to. ``cpu`` is float32 at least, on the CPU.
Precision: TypeAlias = Literal["float32", "float64", "cpu"]
PRECISIONS: Final = get_args(Precision)


class UnraisedError(Exception):
    """A call cannot run in another precision, or would be none the better for it; the text says why."""


class NothingToRaiseError(UnraisedError):
    """Another precision would change nothing of a call."""


T = TypeVar("T")


class CallCache(Generic[T]):
    """Results for calls, or reasons for their lack, by a key that calls share that are alike."""

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
