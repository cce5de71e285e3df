"""PyTorch: a record names the function itself, and a device runs it as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import FAKE_TENSOR, tensors_of
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.devices.math_modes import math_modes
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.remote_calls import RemoteCallDevice
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.ops.lookup import LIBRARY, resolve
from pytest_msprobe.engine.replay.ops.operators import declared
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.results.outcomes import Skip, SkipReason

_MINDSPORE_TYPES = frozenset({"Mint", "MintFunctional", "Primitive", "Jit"})


class TorchFramework:
    """PyTorch, and what extends it: torch_npu."""

    name = "pytorch"
    autocasts = True

    def device(self, devices: DeviceRegistry, name: str) -> Device:
        """Return the registered device of that name. Raises DeviceError where there is none."""
        return devices.get(name)

    def describe(self, device: Device) -> str:
        """Return the active card in words."""
        return device.describe()

    def math_modes(self, device: Device) -> dict[str, str]:
        """Return the device's switches and torch's."""
        return math_modes(device)

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call; for an operator of the library ``npu`` with its name as torch_npu's API."""
        match call.name.api.split("."):
            case ["ops", "npu", api, *_] if call.name.type in (LIBRARY, "Torch"):
                return replace(call, counterpart=replace(call.name, type="NPU", api=api))
        return call

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Device, function: Callable[..., Any] | None
    ) -> Functions:
        """Return the function that the record names.

        The target is the device's own implementation of what has a golden definition: on an NPU, and of a library. A
        GPU has kernels of its own for some of it; in place of the rest the golden definition runs there.
        """
        recorded = [*call.forward.args, *call.forward.kwargs.values(), *call.forward.output]
        types = {element.type for element in tensors_of(recorded)}
        foreign = "mindspore.Tensor" if "mindspore.Tensor" in types else ""
        if foreign or call.name.type in _MINDSPORE_TYPES:
            raise Skip(SkipReason.OTHER_FRAMEWORK, f"{foreign or call.name.qualified_api} in a dump of pytorch")
        if types == {FAKE_TENSOR}:
            raise Skip(SkipReason.FAKE_TENSORS)
        registered = references.get(call.name.qualified_api) is not None
        name = call.name if registered or call.counterpart is None else call.counterpart
        golden = resolve(name, references, function=function)
        if isinstance(device, RemoteCallDevice):
            # What the kernel is, is found there; this only says whether golden is a definition of ours next to it.
            return Functions(device.call if _has_own(name, device) else golden, golden)
        if not _has_own(name, device):
            return _on_gpu(name, golden) if hardware(device) == "cuda" else Functions(golden, golden)
        return Functions(resolve(name, references, own=True, function=function), golden)


def _has_own(name: ApiName, device: Device) -> bool:
    """Return whether a device may have an implementation of its own of what is only defined here."""
    return hardware(device) == "npu" or name.type == LIBRARY


def _on_gpu(name: ApiName, golden: Callable[..., Any]) -> Functions:
    declaration = declared(operation(name.api))
    if declaration is None or declaration.on_gpu is None or declaration.name != name.qualified_api:
        return Functions(golden, golden)
    kernel = declaration.on_gpu(golden)
    return Functions(kernel, golden, lambda: kernel.stand_in)
