"""Simulated devices on the CPU: for tests, and for trying a multi-card run without cards.

They count, route and compute as the CPU does. To plant a fault, subclass SimDevice, wrap ``call`` and register the
subclass from ``pytest_msprobe_register_devices``. What MSPROBE_SIM_MATH_MODES names, they say is on and do not do: a
subclass that does it is judged as such a card would be.
"""

from __future__ import annotations

import os

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.math_modes import ReducedPrecision, read_modes
from pytest_msprobe.errors import DeviceError

COUNT_VARIABLE = "MSPROBE_SIM_DEVICES"
MODES_VARIABLE = "MSPROBE_SIM_MATH_MODES"


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

    def reduced_precision(self) -> ReducedPrecision:
        """Return what the environment says. Raises DeviceError where it names an unknown mode."""
        try:
            return read_modes(os.environ.get(MODES_VARIABLE, ""))
        except DeviceError as error:
            raise DeviceError(f"{MODES_VARIABLE}: {error}") from None
