"""MindSpore behind the engine's seam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore

from pytest_msprobe.devices.compiled import CompiledDevice
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.math_modes import environment_modes
from pytest_msprobe.devices.reduced_precision import reduced_precision
from pytest_msprobe.devices.registry import AUTO, DeviceRegistry
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.mindspore.api_names import functions_of, in_torch_terms
from pytest_msprobe.extensions.mindspore.npu import MindSporeNpu, has_ascend
from pytest_msprobe.extensions.mindspore.runtime import use
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice


class MindSporeFramework:
    """MindSpore in PyNative mode, on the CPU, on NPUs, and on simulated devices."""

    name = "mindspore"
    autocasts = False

    def device(self, devices: DeviceRegistry, name: str) -> Device:
        """Return the device of that name; ``auto`` is the NPU where there is one, else the CPU.

        Raises DeviceError where MindSpore does not compute there.
        """
        if name == "cuda":
            raise DeviceError("device 'cuda': MindSpore's calls run on npu, cpu, sim or a registered simulated device")
        if name == "npu" or (name == AUTO and has_ascend()):
            return MindSporeNpu()
        device = devices.get("cpu" if name == AUTO else name)
        if isinstance(device, CompiledDevice):
            raise DeviceError(f"device {name!r} compiles PyTorch's functions; MindSpore's run on npu, cpu or sim")
        if isinstance(device, RemoteDevice):
            return device.of(self.name)
        if device.location().type != "cpu":
            raise DeviceError(
                f"device {name!r} holds torch tensors on {device.location()}; MindSpore cannot reach them"
            )
        use("CPU", 0)
        return device

    def describe(self, device: Device) -> str:
        """Return the versions of MindSpore and what computes."""
        if isinstance(device, RemoteDevice):
            # The version is the one there, which is reported with the card.
            return device.describe()
        return f"mindspore {mindspore.__version__} on {device.describe()}"

    def math_modes(self, device: Device) -> dict[str, str]:
        """Return MindSpore's switches."""
        import mindspore

        deterministic = str(mindspore.get_context("deterministic")).lower()
        return {**reduced_precision(device).words(), "deterministic": deterministic, **environment_modes()}

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call with torch's dtypes, every float tensor requiring a gradient, and its counterpart."""
        return in_torch_terms(call)

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Device, function: Callable[..., Any] | None
    ) -> Functions:
        """Return MindSpore's function as target and torch's function of the same meaning as golden."""
        return functions_of(call, references, function)
