"""Memory that was freed and that the C library keeps for later."""

from __future__ import annotations

import ctypes
import sys


def return_freed_pages() -> None:
    """Return to the system what the allocator keeps of what was freed, which nothing else could take."""
    # Other C libraries than glibc have no such function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
