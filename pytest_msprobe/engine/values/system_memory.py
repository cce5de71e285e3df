"""Memory of this process: what is available, whether what a file holds fits into it, and the return of freed pages."""

from __future__ import annotations

import ctypes
import math
import sys
from pathlib import Path

from msprobe_hooks.dump.containers import MOST_GROWTH, Contained
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import clipped

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USAGE = Path("/sys/fs/cgroup/memory.current")
_MEMINFO = Path("/proc/meminfo")

# Asking the system costs more than to decompress so little.
_ALWAYS_FREE = 64 * 2**20


def require_memory(path: Path, tensor: Contained) -> None:
    """Raise DumpError where a compressed tensor is larger than what is free: 256 KB can stand for 8 GiB."""
    if tensor.codec is None or tensor.element_bytes > tensor.size * MOST_GROWTH:
        # A frame cannot hold so much, and its reader says so.
        return
    # The frame's content, and the elements that are put together of it.
    needed = 2 * tensor.element_bytes
    if needed > _ALWAYS_FREE and needed > (free := free_bytes()):
        raise DumpError(
            f"{path}: tensor {clipped(tensor.name)!r} takes {needed / 2**30:.1f} GiB to decompress, and "
            f"{free / 2**30:.1f} GiB are free; read it on a machine with more memory"
        )


def total_bytes() -> float:
    """Return how much memory this process could take if it were alone; inf where the system does not say."""
    return min(_meminfo("MemTotal:"), _cgroup_limit())


def free_bytes() -> float:
    """Return how many bytes this process may still take: of the machine, and of its control group if that is less.

    Returns inf where the system reports neither.
    """
    return min(_meminfo("MemAvailable:"), _free_of_cgroup())


def _meminfo(field: str) -> float:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return math.inf
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), math.inf)


def _free_of_cgroup() -> float:
    try:
        return _cgroup_limit() - int(_CGROUP_USAGE.read_text())
    except OSError:
        return math.inf


def _cgroup_limit() -> float:
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return math.inf
    return math.inf if limit == "max" else int(limit)


def return_freed_pages() -> None:
    """Return to the system what the allocator keeps of what was freed, which nothing else could take."""
    # Other C libraries than glibc have no such function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
