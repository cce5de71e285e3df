"""The active card: whether it computes at all, its free memory, and the release of cached memory.

Functions and not methods of ``Device``: a registered device need not have them.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device


def compute_something(device: Device) -> None:
    """Compute something tiny on the active card. Raises whatever the card does; a wrong result is none of its matter.

    A device whose ``call`` takes no function of this process has a method ``probe()`` for it.
    """
    import torch

    probe = getattr(device, "probe", None)
    if probe is not None:
        probe()
        return
    one = device.put(torch.ones(2))
    device.get(device.call(operator.add, (one, one), {}, record="probe"))
    device.synchronize()


def free_on_card(device: Device) -> float:
    """Return how many bytes of the active card may still be taken; inf where it has no memory of its own.

    A device reports it by a method ``free_memory() -> int``.
    """
    free_memory = getattr(device, "free_memory", None)
    return math.inf if free_memory is None else float(free_memory())


def release_memory(device: Device) -> None:
    """Release memory that the card's allocator keeps for later, by the device's method ``release_memory()``."""
    release = getattr(device, "release_memory", None)
    if release is not None:
        release()
