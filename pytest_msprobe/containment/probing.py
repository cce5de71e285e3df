"""Whether a card still works."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device


def failed_probe(device: Device) -> str | None:
    """Compute something tiny on the active card; return None where that works, else the error in words.

    A wrong result is no reason to give a card up: whether results are right is what items are about.
    """
    import torch

    from pytest_msprobe.engine.values.failures import describe_error

    try:
        one = device.put(torch.ones(2))
        device.get(device.call(operator.add, (one, one), {}, record="probe"))
        device.synchronize()
    except Exception as error:
        return describe_error(error)
    return None
