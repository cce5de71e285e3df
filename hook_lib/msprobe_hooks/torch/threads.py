"""The threads that a mode is on: the one that puts it there, and those that begin meanwhile.

A mode belongs to one thread. ``threading.setprofile`` is the one public way to run something in each new thread before
its work begins; the hook puts the mode on the thread's stack at the thread's first event and takes itself away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)

from msprobe_hooks.torch.call_mode import CallMode

Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
Profile = Callable[[FrameType, Event, Any], object]


class ThisThread:
    """The mode on the stack of the thread that begins."""

    def __init__(self, mode: CallMode) -> None:
        self._mode = mode

    def begin(self) -> None:
        """Put the mode on top."""
        _push_on_torch_function_stack(self._mode)

    def end(self) -> None:
        """Take the mode off, wherever it is by now."""
        places = range(_len_torch_function_stack())
        if all(_get_function_stack_at(place) is not self._mode for place in places):
            return
        above = []
        while (top := _pop_torch_function_stack()) is not self._mode:
            above.append(top)
        for other in reversed(above):
            _push_on_torch_function_stack(other)


class NewThreads:
    """Puts a mode on every thread that starts between ``begin`` and ``end``.

    A profiler that was set for new threads keeps working.
    """

    def __init__(self, mode: CallMode) -> None:
        self._mode = mode
        self._other: Profile | None = None

    def begin(self) -> None:
        """Watch for threads."""
        self._other = threading.getprofile()
        threading.setprofile(self._enter)

    def end(self) -> None:
        """Stop watching."""
        threading.setprofile(self._other)

    def _enter(self, frame: FrameType, event: Event, argument: Any) -> None:
        _push_on_torch_function_stack(self._mode)
        sys.setprofile(self._other)
        if self._other is not None:
            self._other(frame, event, argument)
