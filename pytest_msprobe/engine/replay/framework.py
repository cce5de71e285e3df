"""Protocol of the framework that a dump was recorded with, as the engine uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.engine.replay.references import ReferenceRegistry


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions to run for a call: both take and return torch tensors, and torch differentiates both.

    ``target`` runs through the device's ``call``, on tensors that its ``put`` made; ``golden`` on the CPU, on tensors
    in raised precision. ``stand_in`` says, once the target ran, why its golden definition computed in place of a
    kernel of the device; it is empty where it did not.
    """

    target: Callable[..., Any]
    golden: Callable[..., Any]
    stand_in: Callable[[], str] = str


class Framework(Protocol):
    """A framework: inputs, golden results and judging are torch's whatever it is, only the target is its own.

    ``name`` is the one that dumps give it. ``autocasts`` returns whether a call of mixed float dtypes was recorded in
    an autocast region.
    """

    name: str
    autocasts: bool

    def device(self, devices: DeviceRegistry, name: str) -> Device:
        """Return the device that ``--msprobe-device`` names. Raises DeviceError that names what is missing."""

    def describe(self, device: Device) -> str:
        """Return the active card and what drives it, in words."""

    def math_modes(self, device: Device) -> dict[str, str]:
        """Return the switches by name that change how this process computes."""

    def in_torch_terms(self, call: Call) -> Call:
        """Return a recorded call with torch's dtypes and, as its counterpart, the torch API of the same meaning."""

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Device, function: Callable[..., Any] | None
    ) -> Functions:
        """Return what to run for a call in torch terms. Raises Skip, with the reason, where there is nothing.

        ``function`` is what the call's name refers to where that is known already, None otherwise.
        """
