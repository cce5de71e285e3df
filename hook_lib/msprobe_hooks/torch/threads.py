"""Observing the threads that begin while a recording runs.

A mode belongs to one thread. ``threading.setprofile`` is the one public way to run something in each new thread before
its work begins; the hook puts the mode on the thread's stack at the thread's first event and takes itself away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from torch._C import _push_on_torch_function_stack

from msprobe_hooks.torch.calls import CallMode

Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
Profile = Callable[[FrameType, Event, Any], object]


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
