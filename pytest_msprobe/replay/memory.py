"""How much memory a call needs, and how much there is."""

from __future__ import annotations

import math
from pathlib import Path

from msprobe_hooks.schema import TensorElement, walk_tensors
from pytest_msprobe.replay.call import Call
from pytest_msprobe.replay.dtypes import dtype_named
from pytest_msprobe.replay.skips import Skip, SkipReason

_GOLDEN_BYTES = 8

# Asking the system costs more than a small call.
_ALWAYS_FREE = 64 * 2**20

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USAGE = Path("/sys/fs/cgroup/memory.current")
_MEMINFO = Path("/proc/meminfo")


def require_memory(call: Call, share: float) -> None:
    """Raise Skip, with the sizes, where a check of this call takes more than this share of the free memory."""
    needed = needed_bytes(call)
    if needed < _ALWAYS_FREE:
        return
    free = free_bytes() * share
    if needed > free:
        raise Skip(SkipReason.MEMORY, f"needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")


def needed_bytes(call: Call) -> int:
    """Return about how many bytes of CPU memory a check of this call takes.

    Each recorded tensor exists as drawn, on the target and raised to golden precision; gradients likewise.
    """
    elements = [*call.forward.args, *call.forward.kwargs.values(), *call.forward.output]
    if call.backward:
        elements += [*call.backward.grad_outputs, *call.backward.grad_inputs]
    return sum(_bytes(element) for element in walk_tensors(elements))


def _bytes(element: TensorElement) -> int:
    return math.prod(element.shape) * (2 * dtype_named(element.dtype).itemsize + _GOLDEN_BYTES)


def free_bytes() -> float:
    """Return how many bytes this process may still take: of the machine, and of its control group if that is less.

    Returns inf where the system tells neither.
    """
    return min(_free_of_machine(), _free_of_cgroup())


def _free_of_machine() -> float:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return math.inf
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), math.inf)


def _free_of_cgroup() -> float:
    try:
        limit, used = _CGROUP_LIMIT.read_text().strip(), _CGROUP_USAGE.read_text().strip()
    except OSError:
        return math.inf
    return math.inf if limit == "max" else int(limit) - int(used)
