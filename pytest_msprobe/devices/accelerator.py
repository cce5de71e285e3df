"""Base class of torch's accelerators: a module ``torch.<name>`` and tensors that move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_msprobe.errors import DeviceError

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.devices.device import Device


class Accelerator(ABC):
    """A device that torch reaches through ``torch.<name>``; a subclass says how to load it."""

    name: str
    index = 0

    @abstractmethod
    def runtime(self) -> Any:
        """Return the module ``torch.<name>``. Raises DeviceError that names what is missing."""

    def count(self) -> int:
        """Return the number of cards that the caller's visible-device variable leaves."""
        return int(self.runtime().device_count())

    def activate(self, index: int) -> None:
        """Make the card current for this process and start its context.

        Raises DeviceError with the driver's own words where the card cannot be started.
        """
        runtime = self.runtime()
        try:
            runtime.set_device(index)
            runtime.synchronize()
        except RuntimeError as error:
            raise DeviceError(f"device {self.name}:{index} cannot be started: {error}") from error
        self.index = index

    def location(self) -> torch.device:
        """Return torch's device for the active card."""
        import torch

        return torch.device(self.name, self.index)

    def describe(self) -> str:
        """Return the card's name and torch's version."""
        import torch

        return f"{self.name}:{self.index} {self.runtime().get_device_name(self.index)}, torch {torch.__version__}"

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a CPU tensor to the active card."""
        return tensor.detach().to(self.location())

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
        self.runtime().synchronize()

    def free_memory(self) -> int:
        """Return the bytes that are free on the active card, those included that torch keeps for reuse."""
        runtime = self.runtime()
        cached = runtime.memory_reserved(self.index) - runtime.memory_allocated(self.index)
        return int(runtime.mem_get_info(self.index)[0]) + int(cached)

    def release_memory(self) -> None:
        """Release what torch keeps for reuse."""
        self.runtime().empty_cache()


def launching(device: Device) -> Accelerator | None:
    """Return a device whose calls may be launched and waited for later; None for one with a ``call`` of its own."""
    owner = getattr(device.call, "__self__", None)
    is_plain = getattr(device.call, "__func__", None) is Accelerator.call
    return owner if is_plain and isinstance(owner, Accelerator) else None
