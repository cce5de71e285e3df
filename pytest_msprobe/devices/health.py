"""Health of the active card: whether it computes at all."""

from __future__ import annotations

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
