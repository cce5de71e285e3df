"""Kernels that a dump of a static graph holds: they have run already, and nothing runs here but golden definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.references import ReferenceRegistry


class WroteDump(CpuDevice):
    """Device that a dump was written on, for the rules that are about it; tensors of files are on the CPU."""

    def __init__(self, name: str) -> None:
        self.name = name

    def describe(self) -> str:
        """Return that nothing runs on it."""
        return f"kernels recorded on {self.name}, none is run"


class RecordedKernels:
    """MindSpore's kernels, as a graph ran them."""

    name = "mindspore"
    autocasts = False

    def device(self, devices: DeviceRegistry, name: str) -> Device:
        """Return the kind of device that is named, which need not be here."""
        return WroteDump(hardware(devices.get(name)))

    def describe(self, device: Device) -> str:
        """Return what the dump was written on."""
        return device.describe()

    def math_modes(self, device: Device) -> dict[str, str]:
        """Return nothing: the modes of this process are not those of the recording."""
        return {}

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call, which is in torch's terms."""
        return call

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Device, function: Callable[..., Any] | None
    ) -> Functions:
        """Return the definition, as the target too, which is not run."""
        assert function is not None
        return Functions(function, function)
