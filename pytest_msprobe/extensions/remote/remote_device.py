"""A remote card as a device: whole records run on it, since the functions of this process cannot be sent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError, RemoteCall, RemoteCallDevice
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.link import START_SECONDS, Link, Spec, parse_spec
from pytest_msprobe.extensions.remote.messages import (
    Activate,
    Answer,
    Card,
    Cards,
    Failed,
    Open,
    Probe,
    Request,
    Skipped,
    Unlike,
)

_Answer = TypeVar("_Answer", bound=Answer)


class RemoteDevice(RemoteCallDevice):
    """The cards of a device on another machine, or in another environment of this one.

    What goes there and comes back are CPU tensors, which is why it is one. ``framework`` is the one whose calls run
    there. ``unclocked`` is entered while something is waited for, which has a limit of its own. ``loaded`` is the
    number that somebody gave to the call that the process there keeps, 0 for none.
    """

    name = "remote"

    def __init__(self, text: str = "", framework: str = "pytorch") -> None:
        self._text = text
        self._spec: Spec | None = None
        if text:
            self.name, self._spec = f"remote:{text}", parse_spec(text)
        self.framework = framework
        self.unclocked: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self.loaded = 0
        self._index: int | None = None
        self._card: Card | None = None
        self._cards = 0

    def with_text(self, text: str) -> RemoteDevice:
        """Return the device that a SPEC names. Raises DeviceError where it is none."""
        return RemoteDevice(text)

    def of(self, framework: str) -> RemoteDevice:
        """Return the same device for another framework's calls."""
        return RemoteDevice(self._text, framework)

    def count(self) -> int:
        """Return the number of cards there. Raises DeviceError where nothing there can be used."""
        self._link.open()
        return self._cards

    def activate(self, index: int) -> None:
        """Make a card there the target. Raises DeviceError where that fails."""
        self._index = index
        if self._link.is_open:
            self._activate(index)
        self._link.open()

    def describe(self) -> str:
        """Return the card there in words, and its version of this plugin where it is another one."""
        greeting, here = self._link.greeting, version("pytest-msprobe")
        other = f", pytest-msprobe {greeting.version} there" if greeting and greeting.version != here else ""
        return f"{self._active.description} ({self.name}{other})"

    def math_modes(self) -> dict[str, str]:
        """Return the switches there."""
        return self._active.math_modes

    def reduced_precision(self) -> ReducedPrecision:
        """Return in which modes the card computes with fewer bits. Raises DeviceError for an unknown one."""
        try:
            return ReducedPrecision(**self._active.reduced_precision)  # type: ignore[arg-type]
        except TypeError:
            raise DeviceError(f"{self.name}: its math modes are those of another version") from None

    @property
    def draws_inputs(self) -> bool:
        """Return whether inputs that were drawn here are to be drawn there again, and not sent."""
        return self._spec is not None and self._spec.inputs == "drawn"

    @property
    def hardware(self) -> str:
        """Return what computes there, as policies name it."""
        return self._active.hardware

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Raise DeviceError: a function of this process cannot travel."""
        raise DeviceError(f"device {self.name!r}: runs recorded calls only; a function of this process cannot be sent")

    def remote_call(self) -> RemoteCall:
        """Return the side of a check that is computed there."""
        # It loads torch, which a process that only parses options never does.
        from pytest_msprobe.extensions.remote.remote_side import RemoteSide

        return RemoteSide(self)

    def probe(self) -> None:
        """Compute something small there, in a new process where the last one was lost. Raises what goes wrong."""
        self.ask(Probe(), Card)

    def ask(
        self, request: Request, answer: type[_Answer], blobs: Sequence[memoryview] = (), *, limit: float = 0
    ) -> tuple[_Answer | Unlike | Skipped | Failed, list[bytearray]]:
        """Return the answer to a request with its bytes. Raises LinkError where the link is lost."""
        with self.unclocked():
            return self._link.ask(request, answer, blobs, limit=limit)

    def keeps(self, number: int) -> bool:
        """Return whether the process there still keeps the call of this number."""
        return self._link.is_open and self.loaded == number

    def close(self) -> None:
        """End the process there."""
        self._link.close()

    def refused(self, what: str) -> LinkError:
        """End the link, since what came back cannot be, and return what to raise."""
        return self._link.refused(what)

    @property
    def _link(self) -> Link:
        if "_opened" not in vars(self):
            if self._spec is None:
                raise DeviceError("device 'remote' needs a place: remote:ssh=user@host//python=/path/to/python")
            self._opened = Link(self._spec, f"device {self.name!r}", self._prepare)
        return self._opened

    @property
    def _active(self) -> Card:
        assert self._card is not None, "the device has not been activated"
        return self._card

    def _prepare(self) -> None:
        """Open the device in a new process, and activate the card that was active before."""
        assert self._spec is not None
        self.loaded = 0
        opened = self._reply_to(Open(self.framework, self._spec.device, self._spec.plugin), Cards)
        self._cards = opened.count
        if self._index is not None:
            self._activate(self._index)

    def _activate(self, index: int) -> None:
        self._card = self._reply_to(Activate(index), Card)

    def _reply_to(self, request: Request, answer: type[_Answer]) -> _Answer:
        try:
            reply, _ = self._link.ask(request, answer, seconds=START_SECONDS)
        except LinkError as error:
            raise DeviceError(f"device {self.name!r}: {error}") from None
        if isinstance(reply, answer):
            return reply
        raise DeviceError(f"device {self.name!r}: {reply.text if isinstance(reply, Failed) else reply}")
