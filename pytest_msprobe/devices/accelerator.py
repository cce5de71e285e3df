"""torch's accelerators: cards of any device type, by ``torch.<name>`` and ``torch.accelerator``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_msprobe.devices.math_modes import OPERAND_BITS, ReducedPrecision, fp32_precision
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.results.outcomes import Skip, SkipReason, describe_error

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.devices.device import Device

# Types that torch itself names; any other is a backend's own, by which PrivateUse1 is renamed.
_TYPES = ("xpu", "mps", "hpu", "mtia", "xla", "maia")
_UNNAMED = "privateuseone"
_PACKAGES = {"hpu": "habana_frameworks.torch"}
_IN_TORCH_ACCELERATOR = {"set_device": "set_device_index", "mem_get_info": "get_memory_info"}


class Accelerator:
    """The cards of a device type; what ``torch.<name>`` lacks is ``torch.accelerator``'s. Subclasses know more."""

    name: str
    index = 0
    #: What makes a package that is installed load.
    remedy = ""

    def __init__(self, name: str = "") -> None:
        if name:
            self.name = name

    @property
    def hardware(self) -> str:
        """Name of the hardware, as policies have it."""
        return self.name

    def runtime(self) -> Any:
        """Return the module ``torch.<name>``, for which the package ``torch_<name>`` is imported if it is needed.

        Raises DeviceError that names what is missing.
        """
        import torch

        package = _PACKAGES.get(self.name, f"torch_{self.name}")
        if not hasattr(torch, self.name):
            if find_spec(package.partition(".")[0]) is None:
                raise DeviceError(
                    f"device {self.name!r}: the package {package} is not installed, and no other has registered "
                    f"torch.{self.name}; one of another name is imported in conftest.py or by -p"
                )
            try:
                importlib.import_module(package)
            except (ImportError, OSError, RuntimeError) as error:
                problem = f"device {self.name!r}: {package} is installed but cannot be loaded: {error}"
                raise DeviceError(problem, remedy=self.remedy) from error
        return getattr(torch, self.name)

    def _function(self, name: str) -> Callable[..., Any]:
        import torch

        general = getattr(torch, "accelerator", None)
        function = getattr(self.runtime(), name, None)
        if function is None and current_accelerator() == self.name:
            function = getattr(general, _IN_TORCH_ACCELERATOR.get(name, name), None)
        if function is None:
            lacking = "" if general is not None else ", and this torch has no torch.accelerator (2.6 has)"
            problem = f"device {self.name!r}: torch.{self.name} has no {name}(){lacking}"
            raise DeviceError(problem, remedy="the backend has to register a module that has it")
        return function  # type: ignore[no-any-return]

    def count(self) -> int:
        """Return the number of cards that the caller's visible-device variable leaves. Raises DeviceError."""
        try:
            return int(self._function("device_count")())
        except RuntimeError as error:
            raise DeviceError(f"device {self.name!r}: its cards cannot be counted: {error}") from error

    def activate(self, index: int) -> None:
        """Make the card current for this process and start its context.

        Raises DeviceError with the driver's own words where the card cannot be started.
        """
        try:
            self._function("set_device")(index)
            self.synchronize()
        except RuntimeError as error:
            raise DeviceError(f"device {self.name}:{index} cannot be started: {error}") from error
        self.index = index

    def location(self) -> torch.device:
        """Return torch's device for the active card."""
        import torch

        return torch.device(self.name, self.index)

    def describe(self) -> str:
        """Return the card's name, where the backend gives it one, and torch's version."""
        import torch

        words = [f"{self.name}:{self.index}"]
        with contextlib.suppress(DeviceError):
            words.append(self._function("get_device_name")(self.index))
        return f"{' '.join(words)}, torch {torch.__version__}"

    def reduced_precision(self) -> ReducedPrecision:
        """Return what ``matmul``, ``conv`` and ``rnn`` of ``torch.<name>`` and ``torch.backends.<name>`` allow.

        These have ``fp32_precision``, ``allow_hf32`` or ``allow_tf32``.
        """
        import torch

        places = (self.runtime(), getattr(torch.backends, self.name, None))
        matmul, conv, rnn = (_operands(operation, places) for operation in ("matmul", "conv", "rnn"))
        return ReducedPrecision(matmul, conv, rnn)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a CPU tensor to the active card. Raises Skip where the card has no such dtype."""
        try:
            return tensor.detach().to(self.location())
        except (RuntimeError, TypeError) as error:
            import torch

            if self._has(tensor.dtype) or not self._has(torch.float32):
                raise
            raise Skip(SkipReason.UNSUPPORTED, f"{self.name} has no {tensor.dtype}: {describe_error(error)}") from error

    def _has(self, dtype: torch.dtype) -> bool:
        import torch

        with contextlib.suppress(RuntimeError, TypeError):
            return torch.zeros(1, dtype=dtype).to(self.location()).dtype == dtype
        return False

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a result to the CPU."""
        return tensor.detach().cpu()

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call the function and wait for it, so that an asynchronous error is raised for the call that made it."""
        result = self.launch(func, args, kwargs, record=record)
        self.synchronize()
        return result

    def launch(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call the function and return while the card computes; `synchronize` raises what goes wrong there."""
        return func(*args, **kwargs)

    def synchronize(self) -> None:
        """Wait for the active card."""
        self._wait()

    @functools.cached_property
    def _wait(self) -> Callable[[], Any]:
        return self._function("synchronize")

    def free_memory(self) -> float:
        """Return the free bytes of the active card, those included that torch keeps for reuse; inf if unknown."""
        # torch.accelerator has functions of memory also where the backend's allocator does not count.
        with contextlib.suppress(DeviceError, RuntimeError):
            cached = self._function("memory_reserved")(self.index) - self._function("memory_allocated")(self.index)
            return float(self._function("mem_get_info")(self.index)[0] + cached)
        return math.inf

    def release_memory(self) -> None:
        """Release what torch keeps for reuse."""
        with contextlib.suppress(DeviceError, RuntimeError):
            self._function("empty_cache")()


def launching(device: Device) -> Accelerator | None:
    """Return a device whose calls may be launched and waited for later; None for one with a ``call`` of its own."""
    owner = getattr(device.call, "__self__", None)
    is_plain = getattr(device.call, "__func__", None) is Accelerator.call
    return owner if is_plain and isinstance(owner, Accelerator) else None


def current_accelerator() -> str:
    """Return the type of the accelerator that a backend was registered as, or this torch was built for; else empty.

    A torch before 2.6, which cannot say, is asked which of its own has a card.
    """
    import torch

    if hasattr(torch, "accelerator"):
        current = torch.accelerator.current_accelerator()
        return "" if current is None else str(current.type)
    registered = torch._C._get_privateuse1_backend_name()
    names = ("cuda", "xpu", "mps") if registered == _UNNAMED else (registered,)
    return next((name for name in names if getattr(getattr(torch, name, None), "is_available", bool)()), "")


def may_be_accelerator(name: str) -> bool:
    """Return whether a device type may be had: torch names it, a package ``torch_<name>``, or a backend that is loaded.

    torch is imported only where nothing else knows the name. Raises DeviceError for ``meta``.
    """
    if name == "meta":
        raise DeviceError("device 'meta': its tensors have no values, so that there is nothing to judge")
    is_known = name in _TYPES or (name.isidentifier() and find_spec(f"torch_{name}") is not None)
    return is_known or name in accelerator_types()


def accelerator_types() -> list[str]:
    """Return the device types that this torch has a module for, ``torch.<name>``; none without a torch."""
    try:
        import torch
    except ImportError:
        return []
    return [name for name in (*_TYPES, torch._C._get_privateuse1_backend_name()) if hasattr(torch, name)]


def _operands(operation: str, places: Iterable[Any]) -> str:
    """Return the format that the switches of an operation let float32 operands be rounded to; empty where none does."""
    for switches in (getattr(place, operation, None) for place in places):
        precision = fp32_precision(switches)
        allowed = (name for name in ("hf32", "tf32") if getattr(switches, f"allow_{name}", False))
        if operands := precision if precision in OPERAND_BITS else next(allowed, ""):
            return operands
    return ""
