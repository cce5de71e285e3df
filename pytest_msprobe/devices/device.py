"""Protocol of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

# Whoever writes a device finds here what it raises.
from pytest_msprobe.errors import DeviceError as DeviceError

if TYPE_CHECKING:
    import torch


class Device(Protocol):
    """A kind of target with one or more cards, of which one is active in a process.

    A device whose results depend on switches of its own may have a method ``math_modes() -> dict[str, str]`` that names
    them and their states; reports show them. One that computes with fewer bits than its dtypes have, in a mode that is
    meant to, may say so by ``reduced_precision() -> ReducedPrecision``: verdicts take that into account. One that
    compiles what it runs may have ``eager``, the device below, and ``unclocked``, a context to be in meanwhile, which a
    run sets to one whose seconds count for no item's limit. One of a remote card, or of an accelerator, has
    ``hardware``, the name of what computes there.
    """

    name: str

    def count(self) -> int:
        """Return how many cards the caller can see; 0 where the kind is absent. Raises DeviceError if it is broken."""

    def activate(self, index: int) -> None:
        """Make one card the target of all that follows. Raises DeviceError where that fails."""

    def location(self) -> torch.device:
        """Return the torch device that a recorded ``device=`` argument becomes on the active card."""

    def describe(self) -> str:
        """Return the active card in words, with the version of what drives it."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a CPU tensor on the active card, in the same dtype, shape and strides."""

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a result as a detached CPU tensor of the same dtype; on the CPU it may share memory."""

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Run ``func`` on the active card and return what it returns; ``record`` is the name of the record."""

    def synchronize(self) -> None:
        """Wait until all that was started on the active card is done."""


@runtime_checkable
class TakesText(Protocol):
    """Methods of a device whose name on the command line is followed by more than the indices of cards."""

    def with_text(self, text: str) -> Device:
        """Return the device that the text after the colon means; its name is reported with it. Raises DeviceError."""


def hardware(device: Device) -> str:
    """Return what computes behind a device, as policies name it; simulated devices are the CPU."""
    device = getattr(device, "eager", device)
    return str(getattr(device, "hardware", device.name if device.name in ("npu", "cuda") else "cpu"))
