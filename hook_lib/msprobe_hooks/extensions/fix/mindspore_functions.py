"""Calls of MindSpore, named and counted as in a recording, to be listed or run in another precision."""

from __future__ import annotations

import functools
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from msprobe_hooks.extensions.fix.run_plan import Fixed, not_looked_at, require_computation
from msprobe_hooks.extensions.mindspore.call_recording import observers, unrecorded
from msprobe_hooks.extensions.mindspore.upcast import MindSporeRaising
from msprobe_hooks.recording.safety_net import SafetyNet, abandon_in_children
from msprobe_hooks.recording.session import Model, Observer
from msprobe_hooks.recording.upcasts import NothingToRaiseError, Precision, UnraisedError


class CountingFunctions(ABC):
    """Counts the calls of this process, of all its threads together, and of no process that is forked off."""

    def __init__(self, to: Precision, fixed: Fixed, model: Model | None = None) -> None:
        self.raising = MindSporeRaising(to)
        self.fixed = fixed
        self._model = model
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._inside = _Inside()
        self._is_abandoned = False
        abandon_in_children(self)

    @abstractmethod
    def make(
        self, qualified: str, number: int, frame: FrameType, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Make a call and return its result."""

    def wrap(self, function: Callable[..., Any], qualified: str) -> Callable[..., Any]:
        """Return the replacement of a function; what it calls inside are not calls of the program."""

        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside.any_call or self._is_abandoned:
                return function(*args, **kwargs)
            with self._lock:
                number = self._counts[qualified]
                self._counts[qualified] += 1
            self._inside.any_call = True
            try:
                return self.make(qualified, number, sys._getframe(1), function, args, kwargs)
            finally:
                self._inside.any_call = False

        return call

    def note_error(self, where: str, error: Exception) -> None:
        """Count a call that ran as it was, because nothing can be said about it."""
        self.fixed.leave(where, UnraisedError(not_looked_at(error)))

    def abandon(self) -> None:
        """Leave the calls of a forked child alone."""
        self._is_abandoned = True

    def observers(self) -> list[Observer]:
        """Return what puts these functions in place between ``begin`` and ``end``."""
        return observers(self.wrap, unrecorded, self._model)


class FixingFunctions(CountingFunctions):
    """Makes the calls that are wanted in another precision; ``wanted`` is asked with API, number and frame."""

    def __init__(
        self,
        to: Precision,
        wanted: Callable[[str, int, FrameType | None], bool],
        fixed: Fixed,
        model: Model | None = None,
    ) -> None:
        super().__init__(to, fixed, model)
        self._wanted = wanted

    def make(
        self, qualified: str, number: int, frame: FrameType, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Make a call, raised where it is wanted and can be."""
        is_wanted = False
        with SafetyNet(self.note_error, qualified):
            is_wanted = self._wanted(qualified, number, frame)
        if not is_wanted:
            return function(*args, **kwargs)
        return self.fixed.make(
            qualified,
            lambda: self._raised(qualified, function, args, kwargs),
            lambda: function(*args, **kwargs),
        )

    def _raised(self, qualified: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            require_computation(qualified)
            return self.raising.make(qualified, function, args, kwargs)
        except UnraisedError:
            raise
        except Exception as error:
            raise UnraisedError(not_looked_at(error)) from error


class ListingFunctions(CountingFunctions):
    """Makes every call as it is, and lists those that fixing would change, by API and number.

    Those that it would leave as they are for another reason than that nothing would change are counted in ``fixed``.
    """

    def __init__(self, to: Precision, report: Callable[[str, int], None], fixed: Fixed) -> None:
        super().__init__(to, fixed)
        self._report = report

    def make(
        self, qualified: str, number: int, frame: FrameType, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Make a call, and list it where it can be raised."""
        with SafetyNet(self.note_error, qualified):
            self._list(qualified, number, function, args, kwargs)
        return function(*args, **kwargs)

    def _list(self, qualified: str, number: int, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            require_computation(qualified)
            self.raising.require(qualified, function, args, kwargs)
            self._report(qualified, number)
        except NothingToRaiseError:
            pass
        except UnraisedError as reason:
            self.fixed.leave(qualified, reason)


class _Inside(threading.local):
    any_call = False
