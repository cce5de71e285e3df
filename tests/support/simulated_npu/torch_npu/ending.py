"""The end of a process, which waits until PyTorch's threads of cards have let go of Python's objects.

A backward pass holds a copy of its caller's context, and the card's thread may free it after ``backward`` has
returned. If the interpreter ends meanwhile, PyTorch aborts the process: half of all scripts that end right after a
pass of one operator, where the kernels are as quick to start as here.
"""

import atexit
import contextvars
import time
import weakref

LONGEST_WAIT = 5.0
"""Seconds after which a process ends all the same: something else keeps a copy of the context."""


class _Held:
    """What each copy of the context holds."""


_held: contextvars.ContextVar[_Held | None] = contextvars.ContextVar("held")


def wait_for_backward_passes() -> None:
    """Let the process end only when no copy of the context of this thread is left."""
    held = _Held()
    _held.set(held)
    atexit.register(_wait, weakref.ref(held))


def _wait(held: "weakref.ref[_Held]") -> None:
    _held.set(None)
    end = time.monotonic() + LONGEST_WAIT
    while held() is not None and time.monotonic() < end:
        time.sleep(0.001)
