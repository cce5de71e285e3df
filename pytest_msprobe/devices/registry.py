"""The devices that ``--msprobe-device`` can name, and choosing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.devices.accelerator import Accelerator, accelerator_types, current_accelerator, may_be_accelerator
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.cuda import CudaDevice
from pytest_msprobe.devices.device import Device, TakesText
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.installed_extensions import register

AUTO = "auto"
ACCELERATOR = "accelerator"

_MEANT = {"gpu": "a GPU: cuda", "ascend": "Ascend: npu", "rocm": "a GPU: cuda"}


class DeviceRegistry:
    """Devices by name; extensions and plugins add theirs in ``pytest_msprobe_register_devices``."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        for device in (NpuDevice(), CudaDevice(), CpuDevice(), SimDevice()):
            self.add(device)
        register("pytest_msprobe_register_devices", self)

    def add(self, device: Device) -> None:
        """Make a device known under its name, in place of a former one of that name."""
        self._devices[device.name] = device

    def names(self) -> list[str]:
        """Return the known names, best first."""
        return list(self._devices)

    def get(self, name: str) -> Device:
        """Return the device of that name, which may be a device type of torch.

        ``accelerator`` is torch's current accelerator; ``auto`` is an NPU, else that, else a GPU, else the CPU: the
        first that has a card. Text after a colon is for the device, where it takes any. Raises DeviceError that lists
        the known names where there is no such device.
        """
        if name == AUTO:
            return next(filter(None, map(self._with_card, ("npu", ACCELERATOR, "cuda", "cpu"))))
        if name == ACCELERATOR:
            name = current_accelerator()
            if not name:
                problem = f"device {ACCELERATOR!r}: this torch has no accelerator, and no backend is loaded"
                raise DeviceError(problem, remedy="import its package in conftest.py or by -p")
        base, _, text = name.partition(":")
        if base not in self._devices:
            if base in _MEANT or not may_be_accelerator(base):
                names = [AUTO, *dict.fromkeys((*self._devices, ACCELERATOR, *accelerator_types()))]
                hint = f"; for {_MEANT[base]}" if base in _MEANT else did_you_mean(base, names)
                remedy = "" if hint else "one of your own comes from conftest.py, in pytest-msprobe replay by -p MODULE"
                raise DeviceError(f"unknown device {name!r}; known are {', '.join(names)}{hint}", remedy=remedy)
            self.add(Accelerator(base))
        device = self._devices[base]
        return device.with_text(text) if text and isinstance(device, TakesText) else device

    def _with_card(self, name: str) -> Device | None:
        """Return the device of that name if it has a card."""
        try:
            device = self.get(name)
            return device if device.count() > 0 else None
        except DeviceError:
            return None

    def takes_text(self, name: str) -> bool:
        """Return whether the name of a device may hold more than cards after its colon."""
        return isinstance(self._devices.get(name), TakesText)


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Choice of ``--msprobe-device NAME[:indices]``; no indices mean every visible card."""

    name: str
    indices: tuple[int, ...] = ()

    def index_for(self, slot: int, count: int) -> int:
        """Return the card for a worker's slot: slots take the chosen cards in turn."""
        indices = self.indices or tuple(range(count))
        return indices[slot % len(indices)]

    def __str__(self) -> str:
        return f"{self.name}:{','.join(map(str, self.indices))}" if self.indices else self.name


def parse_device(text: str, devices: DeviceRegistry) -> DeviceChoice:
    """Read ``NAME`` or ``NAME:0,2,4-7``, of a device that takes text also ``NAME:TEXT`` or ``NAME:TEXT:0,2,4-7``.

    Raises DeviceError where the indices are not numbers or ranges of numbers.
    """
    name, colon, spans = text.partition(":")
    if spans and devices.takes_text(name) and not _is_spans(spans):
        own, colon, spans = spans.rpartition(":") if _is_spans(spans.rpartition(":")[2]) else (spans, "", "")
        name = f"{name}:{own}"
    if not colon:
        return DeviceChoice(name)
    try:
        indices = tuple(index for span in spans.split(",") for index in _span(span))
    except ValueError:
        raise DeviceError(f"device {text!r}: indices are numbers and ranges such as {name}:0,2,4-7") from None
    return DeviceChoice(name, tuple(dict.fromkeys(indices)))


def on_card(words: Sequence[str], card: str) -> list[str]:
    """Return a command's words with the card that an item ran on in place of those that the run had to choose from.

    The first card of all need not be named: alone, an item runs on it.
    """
    named = list(words)
    # A command of a damaged journal may end with the option.
    if card and "--msprobe-device" in named[:-1]:
        place = named.index("--msprobe-device") + 1
        name, _, index = card.rpartition(":")
        if ":" in named[place].removeprefix(name) or index != "0":
            named[place] = card
    return named


def _is_spans(text: str) -> bool:
    return bool(text) and not text.strip("0123456789,- ")


def _span(text: str) -> range:
    first, dash, last = text.strip().partition("-")
    span = range(int(first), int(last if dash else first) + 1)
    if not span:
        raise ValueError(text)
    return span


def activate(device: Device, choice: DeviceChoice, slot: int) -> int:
    """Activate the card that belongs to a worker's slot and return its index.

    Raises DeviceError where the kind has no card or a chosen index does not exist.
    """
    count = device.count()
    if count == 0:
        raise DeviceError(f"device {device.name!r}: no card is visible to this process")
    missing = [index for index in choice.indices if index >= count]
    if missing:
        raise DeviceError(f"device {choice}: index {missing[0]} does not exist; {count} visible, counted from 0")
    index = choice.index_for(slot, count)
    device.activate(index)
    return index
