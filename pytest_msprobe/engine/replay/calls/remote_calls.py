"""A device that runs whole recorded calls in another process, to which functions of this one cannot be sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pytest_msprobe.devices.cpu import CpuDevice

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from pytest_msprobe.engine.replay.calls.arguments import Subject
    from pytest_msprobe.engine.replay.calls.side import Gradients, Run
    from pytest_msprobe.results.outcomes import Breakdown


class LinkError(Exception):
    """The other process was lost in what was asked of it; ``breakdown`` says how."""

    def __init__(self, text: str, breakdown: Breakdown) -> None:
        super().__init__(text)
        self.breakdown = breakdown


class RemoteCall(Protocol):
    """One recorded call that runs in the other process.

    Both directions raise Skip where the call cannot be run there, TargetError where it raises, MemoryError where memory
    runs out, LinkError where the process is lost.
    """

    def forward(self, subject: Subject) -> Run:
        """Return the run of a recorded call, as CPU tensors. Raises DeviceError for any other."""

    def backward(self, subject: Subject, run: Run, grad_outputs: Mapping[str, torch.Tensor]) -> Gradients:
        """Return the gradients of a run's leaves by path, for those of its outputs."""


class RemoteCallDevice(CpuDevice, ABC):
    """A device whose cards are reached from another process; what is sent and what returns are CPU tensors."""

    @abstractmethod
    def of(self, framework: str) -> Self:
        """Return the same device for another framework's calls."""

    @abstractmethod
    def remote_call(self) -> RemoteCall:
        """Return what runs one more recorded call."""
