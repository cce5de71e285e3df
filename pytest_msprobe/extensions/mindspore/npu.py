"""Ascend NPUs through MindSpore."""

from __future__ import annotations

import contextlib

import mindspore

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.mindspore.runtime import unlogged, use


class MindSporeNpu(CpuDevice):
    """NPUs that MindSpore computes on; it moves tensors between the CPU and the active card by itself."""

    name = "npu"
    index = 0

    def count(self) -> int:
        """Return the number of visible NPUs. Raises DeviceError, in MindSpore's words, where Ascend cannot be used."""
        if not has_ascend():
            raise DeviceError(f"device 'npu': MindSpore {mindspore.__version__} cannot use Ascend: {_why_not()}")
        return int(mindspore.hal.device_count("Ascend"))

    def activate(self, index: int) -> None:
        """Make the card current for this process. Raises DeviceError where it cannot be started."""
        use("Ascend", index)
        self.index = index

    def describe(self) -> str:
        """Return the card's index and name."""
        name = ""
        with contextlib.suppress(RuntimeError, ValueError):
            name = f" {mindspore.hal.get_device_name(self.index, 'Ascend')}"
        return f"npu:{self.index}{name}"


def has_ascend() -> bool:
    """Return whether MindSpore can use Ascend; it logs several lines of warnings where it cannot."""
    with unlogged():
        return bool(mindspore.hal.is_available("Ascend"))


def _why_not() -> str:
    """Return the first library that is missing, or the first line of what MindSpore says."""
    try:
        mindspore.set_device("Ascend", 0)
    except (RuntimeError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        missing = next((line for line in lines if "cannot open shared object" in line), lines[0] if lines else "")
        return f"{missing.strip()}; install CANN and source its set_env.sh"
    return "no NPU was found"
