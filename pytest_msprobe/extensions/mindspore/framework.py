"""MindSpore and MindTorch as frameworks of the engine, the functions that records of them name, and their NPUs."""

from __future__ import annotations

import contextlib
import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import mindspore
import torch
from mindspore import mint, ops

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import tensors_of
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.math_modes import environment_modes, reduced_precision
from pytest_msprobe.devices.registry import AUTO, DeviceRegistry
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.remote_calls import RemoteCallDevice
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.mindspore import jit_functions
from pytest_msprobe.extensions.mindspore.functional import DEFINITIONS
from pytest_msprobe.extensions.mindspore.jit_functions import as_tuples, bridged
from pytest_msprobe.extensions.mindspore.primitives import calls as primitives
from pytest_msprobe.extensions.mindspore.runtime import load_mindtorch, unlogged, use
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip, foreign_type
from pytest_msprobe.extensions.mindspore.translation import in_torch_terms as translated
from pytest_msprobe.results.outcomes import Skip, SkipReason

# Where torch keeps what a type of MindSpore record names, the likeliest place first.
_TORCH_TYPES = {
    "Mint": ("Torch",),
    "MintFunctional": ("Functional",),
    "Tensor": ("Tensor", "Torch"),
    "Functional": ("Functional", "Torch", "Tensor"),
    "MintDistributed": ("MintDistributed",),
    "Distributed": ("Distributed",),
}

# Other names of the same function.
_RENAMED = {
    **{f"Functional.bessel_{name}": f"Torch.special.{name}" for name in ("i0", "i0e", "i1", "i1e")},
    **{f"Functional.bessel_{name}": f"Torch.special.modified_bessel_{name}" for name in ("k0", "k1")},
    **{f"Functional.bessel_{name}e": f"Torch.special.scaled_modified_bessel_{name}" for name in ("k0", "k1")},
    "Functional.bidense": "Functional.bilinear",
    "Functional.broadcast_to": "Tensor.expand",
    "Functional.cast": "Tensor.to",
    "Functional.clip_by_value": "Torch.clamp",
    "Functional.concat": "Torch.cat",
    "Functional.dense": "Functional.linear",
    "Functional.equal": "Torch.eq",
    "Functional.expand_dims": "Torch.unsqueeze",
    "Functional.floor_div": "Torch.floor_divide",
    "Functional.floor_mod": "Torch.remainder",
    "Functional.gather_d": "Torch.gather",
    "Functional.gather_elements": "Torch.gather",
    "Functional.inv": "Torch.reciprocal",
    "Functional.invert": "Torch.bitwise_not",
    "Functional.matrix_solve": "Torch.linalg.solve",
    "Functional.norm": "Torch.linalg.norm",
    "Functional.reverse": "Torch.flip",
    "Functional.select": "Torch.where",
    "Functional.swapaxes": "Torch.transpose",
    "Functional.tensor_dot": "Torch.tensordot",
    "Functional.transpose": "Torch.permute",
    "Functional.truncate_mod": "Torch.fmod",
    "Functional.unstack": "Torch.unbind",
    "Tensor.astype": "Tensor.to",
    "Tensor.broadcast_to": "Tensor.expand",
    "Tensor.copy": "Tensor.clone",
    "Tensor.equal": "Tensor.eq",
    "Tensor.expand_dims": "Tensor.unsqueeze",
    "Tensor.fill_diagonal": "Tensor.fill_diagonal_",
    "Tensor.gather_elements": "Torch.gather",
    "Tensor.inv": "Torch.reciprocal",
    "Tensor.invert": "Torch.bitwise_not",
}

# torch's names of MindSpore's keyword arguments.
_KEYWORDS = {
    "axis": "dim",
    "keep_dims": "keepdim",
    "keepdims": "keepdim",
    "input_x": "input",
    "x": "input",
    "input_y": "other",
    "y": "other",
    "input_perm": "dims",
}


def counterpart(name: ApiName) -> ApiName | None:
    """Return torch's name of an API that has another one there; None where it is called the same."""
    if name.type == "Primitive":
        return primitives.counterpart(name)
    if name.type == "Jit":
        return jit_functions.counterpart(name)
    renamed = _RENAMED.get(name.qualified_api)
    if renamed is None:
        return None
    kind, _, api = renamed.partition(".")
    return replace(name, type=kind, api=api)


def in_torch_terms(call: Call) -> Call:
    """Return a recorded call with torch's dtypes, and its counterpart; of a primitive the settings as keywords."""
    name = call.name
    if name.type == "Primitive":
        call = replace(call, forward=primitives.with_settings(call.forward, name))
    return translated(call, counterpart(name))


def functions_of(call: Call, references: ReferenceRegistry, function: Callable[..., Any] | None) -> Functions:
    """Return MindSpore's function, on torch tensors, and its golden definition. Raises Skip where one is missing.

    ``function`` is MindSpore's where it is known already.
    """
    name, foreign = call.name, foreign_type(call)
    if foreign or name.type not in (*_TORCH_TYPES, "Primitive", "Jit"):
        raise Skip(SkipReason.OTHER_FRAMEWORK, f"{foreign or name.qualified_api} in a dump of mindspore")
    if name.type == "Jit":
        return jit_functions.functions_of_compiled(call, references, function)
    if name.type == "Primitive":
        functions = primitives.functions_of_primitive(call, references, function)
        return replace(functions, golden=as_recorded(functions.golden, call))
    golden = _golden(call, references)
    target = function or function_named(name)
    if target is None:
        raise Skip(MindSporeSkip.MISSING_API, name.qualified_api)
    if golden is None:
        raise Skip(MindSporeSkip.NO_COUNTERPART, name.qualified_api)
    if name.api == "__setitem__":
        target = _without_result(target)
    return Functions(bridged(target, in_place=works_in_place(name.api)), as_recorded(golden, call))


def function_named(name: ApiName) -> Callable[..., Any] | None:
    """Return MindSpore's function of that name, on its own tensors; None where it has none."""
    return _FINDERS[name.type](name.api) if name.type in _FINDERS else None


def _golden(call: Call, references: ReferenceRegistry) -> Callable[..., Any] | None:
    name = call.name
    defined = references.get(name.qualified_api) or DEFINITIONS.get(name.qualified_api)
    if defined is not None:
        return defined
    if call.counterpart is not None:
        return _with_torch_keywords(resolve(call.counterpart, references))
    for kind in _TORCH_TYPES.get(name.type, ()):
        try:
            resolved = resolve(replace(name, type=kind), references)
        except Skip as skip:
            if skip.reason is not SkipReason.UNKNOWN_API:
                raise
        else:
            return resolved if name.type.startswith("Mint") else _with_torch_keywords(resolved)
    return None


def as_recorded(function: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """Return the golden function with tuples for lists, and with 32-bit indices where those were recorded.

    torch's have 64 bits.
    """
    recorded = [element.dtype for element in tensors_of(call.forward.output)]

    def formed(*args: Any, **kwargs: Any) -> Any:
        dtypes = iter(recorded)

        def narrow(tensor: torch.Tensor) -> torch.Tensor:
            recorded_dtype = next(dtypes, "")
            return tensor.int() if tensor.dtype is torch.int64 and recorded_dtype == "torch.int32" else tensor

        results = function(*args, **kwargs)
        return as_tuples(map_tensors(narrow, results) if "torch.int32" in recorded else results)

    return formed


def _with_torch_keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **_renamed(kwargs))

    return call


def _renamed(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {_KEYWORDS.get(key, key): value for key, value in kwargs.items()}


def _without_result(function: Callable[..., Any]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    return call


def works_in_place(api: str) -> bool:
    """Return whether an API changes its first tensor, by its name."""
    return api == "__setitem__" or (api.endswith("_") and not api.endswith("__"))


def _attribute(module: ModuleType, dotted: str) -> Callable[..., Any] | None:
    owner: Any = module
    for part in dotted.split("."):
        if not isinstance(owner, ModuleType) or part.startswith("__"):
            return None
        owner = getattr(owner, part, None)
    return owner if callable(owner) and not inspect.isclass(owner) else None


def _tensor_method(api: str) -> Callable[..., Any] | None:
    method = getattr(mindspore.Tensor, api, None)
    if method is None or callable(method):
        return method
    return operator.attrgetter(api)


_FINDERS: dict[str, Callable[[str], Callable[..., Any] | None]] = {
    "Mint": lambda api: _attribute(mint, api),
    "MintFunctional": lambda api: _attribute(mint.nn.functional, api),
    "Tensor": _tensor_method,
    "Functional": lambda api: _attribute(ops, api),
    "Primitive": lambda api: primitives.primitive_class(api.rpartition(".")[2]),
}


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
        if hasattr(type(device), "eager"):
            raise DeviceError(f"device {name!r} compiles PyTorch's functions; MindSpore's run on npu, cpu or sim")
        if isinstance(device, RemoteCallDevice):
            return device.of(self.name)
        if device.location().type != "cpu":
            raise DeviceError(
                f"device {name!r} holds torch tensors on {device.location()}; MindSpore cannot reach them"
            )
        use("CPU", 0)
        return device

    def describe(self, device: Device) -> str:
        """Return the versions of MindSpore and what computes."""
        if isinstance(device, RemoteCallDevice):
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


# Where it keeps what a type of record names.
_HOMES = {"Torch": "", "Functional": "nn.functional.", "Tensor": "Tensor."}


class MindTorchFramework(MindSporeFramework):
    """MindTorch on the devices of MindSpore. Raises DeviceError where it cannot be imported."""

    name = "mindtorch"

    def __init__(self) -> None:
        try:
            self._torch = load_mindtorch()
        except Exception as error:
            raise DeviceError(f"MindTorch cannot be imported: {error}") from error

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call with torch's dtypes; its name is torch's."""
        return translated(call, None)

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Any, function: Callable[..., Any] | None
    ) -> Functions:
        """Return MindTorch's function, of what PyTorch counts among its operations on tensors, and PyTorch's."""
        name, foreign = call.name, foreign_type(call)
        if foreign:
            raise Skip(SkipReason.OTHER_FRAMEWORK, f"{foreign} in a dump of mindtorch")
        golden = resolve(name, references)
        target = function or self._named(name.type, name.api)
        if target is None:
            raise Skip(MindSporeSkip.MISSING_API, f"MindTorch's {name.qualified_api}")
        return Functions(bridged(target, in_place=works_in_place(name.api)), as_recorded(golden, call))

    def _named(self, type_: str, api: str) -> Callable[..., Any] | None:
        home = _HOMES.get(type_)
        if home is None:
            return None
        try:
            attribute = operator.attrgetter(f"{home}{api}")(self._torch)
        except AttributeError:
            return None
        return attribute if callable(attribute) else operator.attrgetter(api)


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
