"""The CPU as a target."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_msprobe.errors import DeviceError

if TYPE_CHECKING:
    import torch


class CpuDevice:
    """The CPU of this machine: one card, tensors stay where they are."""

    name = "cpu"

    def count(self) -> int:
        """Return 1."""
        return 1

    def activate(self, index: int) -> None:
        """Accept index 0. Raises DeviceError for any other."""
        if index:
            raise DeviceError(f"device 'cpu': index {index} does not exist; there is one CPU, index 0")

    def location(self) -> torch.device:
        """Return torch's CPU device."""
        import torch

        return torch.device("cpu")

    def describe(self) -> str:
        """Return the machine's architecture and torch's version and thread count."""
        import torch

        return f"{platform.machine()} CPU, torch {torch.__version__}, {torch.get_num_threads()} threads"

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy, so that an in-place API leaves the original alone."""
        return tensor.detach().clone()

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor itself, detached."""
        return tensor.detach()

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call the function."""
        return func(*args, **kwargs)

    def synchronize(self) -> None:
        """Return at once: the CPU is never behind."""
