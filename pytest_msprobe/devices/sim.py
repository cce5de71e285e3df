"""Simulated devices on the CPU: for tests, and for trying a multi-card run without cards.

They count, route and compute as the CPU does. To plant a fault, subclass SimDevice, wrap ``call`` and register the
subclass from ``pytest_msprobe_register_devices``.
"""

from __future__ import annotations

import os

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.errors import DeviceError

COUNT_VARIABLE = "MSPROBE_SIM_DEVICES"


class SimDevice(CpuDevice):
    """As many devices as the environment variable MSPROBE_SIM_DEVICES says, 8 where it is not set."""

    name = "sim"
    index = 0

    def count(self) -> int:
        """Return the number of simulated cards. Raises DeviceError where the variable is not a positive number."""
        text = os.environ.get(COUNT_VARIABLE, "8")
        if not text.isdecimal() or int(text) == 0:
            raise DeviceError(f"{COUNT_VARIABLE}={text!r}: expected a positive number of simulated devices")
        return int(text)

    def activate(self, index: int) -> None:
        """Remember the index."""
        self.index = index

    def describe(self) -> str:
        """Return the card's index and what computes for it."""
        return f"simulated card {self.index} of {self.count()} on {super().describe()}"
