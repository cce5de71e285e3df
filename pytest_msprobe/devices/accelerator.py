"""torch's accelerators, each by the name of its device type: what ``torch.<name>`` and ``torch.accelerator`` offer."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_msprobe.devices.math_modes import OPERAND_BITS, ReducedPrecision, fp32_precision
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.results.outcomes import Skip, SkipReason, describe_error

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.devices.device import Device

#: Types that torch itself names; what else there may be is a backend's of its own.
_TYPES = ("xpu", "mps", "hpu", "mtia", "xla", "maia")
_UNNAMED = "privateuseone"
_PACKAGES = {"hpu": "habana_frameworks.torch"}
_OF_TORCH_ACCELERATOR = {"set_device": "set_device_index", "mem_get_info": "get_memory_info"}


class Accelerator:
    """The cards of a device type, driven by ``torch.<name>`` and, for what that lacks, by ``torch.accelerator``."""

    name: str
    index = 0

    def __init__(self, name: str = "") -> None:
        if name:
            self.name = name

    @property
    def hardware(self) -> str:
        """What computes, as policies name it."""
        return self.name

    def runtime(self) -> Any:
        """Return the module ``torch.<name>``, or ``torch.accelerator`` where the backend has registered none.

        The package ``torch_<name>`` is imported where it is installed. Raises DeviceError that says what is missing.
        """
        import torch

        if not hasattr(torch, self.name):
            self._load()
        if not hasattr(torch, self.name) and current_accelerator() != self.name:
            raise DeviceError(
                f"device {self.name!r}: no backend of it is loaded",
                remedy=f"import its package in conftest.py or by -p; it registers torch.{self.name}",
            )
        return getattr(torch, self.name, None) or torch.accelerator

    def _load(self) -> None:
        package = _PACKAGES.get(self.name, f"torch_{self.name}")
        if find_spec(package.partition(".")[0]) is not None:
            try:
                importlib.import_module(package)
            except (ImportError, OSError, RuntimeError) as error:
                raise DeviceError(f"device {self.name!r}: {package} cannot be imported: {error}") from error

    def _function(self, name: str) -> Callable[..., Any] | None:
        """Return the function of ``torch.<name>``, else that of ``torch.accelerator``, None where neither has it."""
        import torch

        own = getattr(self.runtime(), name, None)
        if own is None and current_accelerator() == self.name:
            general = getattr(torch, "accelerator", None)
            own = getattr(general, _OF_TORCH_ACCELERATOR.get(name, name), None)
        return own  # type: ignore[no-any-return]

    def _required(self, name: str) -> Callable[..., Any]:
        function = self._function(name)
        if function is None:
            import torch

            lacking = "" if hasattr(torch, "accelerator") else ", and this torch has no torch.accelerator (2.6 has)"
            raise DeviceError(
                f"device {self.name!r}: torch.{self.name} has no {name}(){lacking}",
                remedy="add it to the module that the backend registers",
            )
        return function

    def count(self) -> int:
        """Return the number of cards that the caller's visible-device variable leaves.

        Raises DeviceError with the driver's own words where it cannot count them.
        """
        count = self._required("device_count")
        try:
            return int(count())
        except RuntimeError as error:
            raise DeviceError(f"device {self.name!r}: its cards cannot be counted: {error}") from error

    def activate(self, index: int) -> None:
        """Make the card current for this process and start its context.

        Raises DeviceError with the driver's own words where the card cannot be started.
        """
        choose = self._function("set_device")
        if choose is None and index:
            # The only card of a type, as on a Mac, need not be chosen.
            choose = self._required("set_device")
        try:
            if choose is not None:
                choose(index)
            self.synchronize()
        except RuntimeError as error:
            raise DeviceError(f"device {self.name}:{index} cannot be started: {error}") from error
        self.index = index

    def location(self) -> torch.device:
        """Return torch's device for the active card."""
        import torch

        return torch.device(self.name, self.index)

    def describe(self) -> str:
        """Return the card's name, where it has one, and torch's version."""
        import torch

        name_of = self._function("get_device_name")
        name = "" if name_of is None else f" {name_of(self.index)}"
        return f"{self.name}:{self.index}{name}, torch {torch.__version__}"

    def reduced_precision(self) -> ReducedPrecision:
        """Return what the backend's switches say of float32 operands.

        They are read from ``torch.<name>`` and ``torch.backends.<name>``: ``matmul``, ``conv`` and ``rnn`` with
        ``fp32_precision``, ``allow_tf32`` or ``allow_hf32``.
        """
        import torch

        places = (self.runtime(), getattr(torch.backends, self.name, None))
        formats = {
            operation: next(filter(None, (_operands(getattr(place, operation, None)) for place in places)), "")
            for operation in ("matmul", "conv", "rnn")
        }
        return ReducedPrecision(**formats)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a CPU tensor to the active card. Raises Skip where the card has no such dtype."""
        try:
            return tensor.detach().to(self.location())
        except (RuntimeError, TypeError) as error:
            import torch

            if self._has(tensor.dtype) or not self._has(torch.float32):
                raise
            lacking = f"{self.name} has no {str(tensor.dtype).removeprefix('torch.')}"
            raise Skip(SkipReason.UNSUPPORTED, f"{lacking}: {describe_error(error)}") from error

    def _has(self, dtype: torch.dtype) -> bool:
        import torch

        try:
            torch.zeros(1, dtype=dtype).to(self.location())
        except (RuntimeError, TypeError):
            return False
        return True

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
        return self._required("synchronize")

    def free_memory(self) -> float:
        """Return the bytes that are free on the active card, those included that torch keeps for reuse.

        inf where the backend does not report its memory.
        """
        free, reserved, allocated = map(self._function, ("mem_get_info", "memory_reserved", "memory_allocated"))
        if free is None or reserved is None or allocated is None:
            return math.inf
        try:
            return float(free(self.index)[0] + reserved(self.index) - allocated(self.index))
        except RuntimeError:
            # torch.accelerator has these functions whether or not the backend's allocator counts.
            return math.inf

    def release_memory(self) -> None:
        """Release what torch keeps for reuse."""
        release = self._function("empty_cache")
        if release is not None:
            # As for `free_memory`.
            with contextlib.suppress(RuntimeError):
                release()


def launching(device: Device) -> Accelerator | None:
    """Return a device whose calls may be launched and waited for later; None for one with a ``call`` of its own."""
    owner = getattr(device.call, "__self__", None)
    is_plain = getattr(device.call, "__func__", None) is Accelerator.call
    return owner if is_plain and isinstance(owner, Accelerator) else None


def current_accelerator() -> str:
    """Return the type of the accelerator that this torch was built for or a backend was registered as; else empty.

    A torch without ``torch.accelerator``, before 2.6, is asked for that backend, then for its own that have a card.
    """
    import torch

    general = getattr(torch, "accelerator", None)
    if general is not None:
        current = general.current_accelerator()
        return "" if current is None else str(current.type)
    registered = torch._C._get_privateuse1_backend_name()
    names = ("cuda", "xpu", "mps") if registered == _UNNAMED else (registered,)
    return next((name for name in names if getattr(getattr(torch, name, None), "is_available", bool)()), "")


def may_be_accelerator(name: str) -> bool:
    """Return whether a device type of that name may be had: torch names it, a package ``torch_<name>``, or a backend.

    torch is imported only for a name of which nothing else is known. Raises DeviceError for ``meta``.
    """
    if name == "meta":
        raise DeviceError("device 'meta': its tensors have no values, so that there is nothing to judge")
    if not name.isidentifier():
        return False
    if name in _TYPES or find_spec(f"torch_{name}") is not None:
        return True
    return name in accelerator_types()


def accelerator_types() -> list[str]:
    """Return the device types that this torch has a module for, ``torch.<name>``; none without a torch."""
    try:
        import torch
    except ImportError:
        return []
    registered = torch._C._get_privateuse1_backend_name()
    names = ("cuda", *_TYPES, *([registered] if registered != _UNNAMED else []))
    return [name for name in names if hasattr(torch, name)]


def has_backend_here() -> bool:
    """Return whether this process has loaded a backend that is none of torch's own, which a new process may lack."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch._C._get_privateuse1_backend_name() != _UNNAMED


def _operands(switches: Any) -> str:
    """Return the format that float32 operands are rounded to by switches of one operation; empty where by none."""
    precision = fp32_precision(switches)
    if precision in OPERAND_BITS:
        return precision
    return next((name for name in ("hf32", "tf32") if getattr(switches, f"allow_{name}", False) is True), "")
