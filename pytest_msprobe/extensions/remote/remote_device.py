"""The device ``remote:``: calls run in a process on another machine, whose results come back as data."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

import msgspec
import torch

from msprobe_hooks.dump.json_records import backward_body, forward_body
from pytest_msprobe.devices.reduced_precision import ReducedPrecision
from pytest_msprobe.engine.replay.calls import side
from pytest_msprobe.engine.replay.calls.arguments import Subject, TargetError
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError, RemoteCall, RemoteCallDevice
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.trials.memory_budget import needed_bytes
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.codec import FormError, digest, from_node, packed, unpacked
from pytest_msprobe.extensions.remote.link import START_SECONDS, Link, Spec, parse_spec
from pytest_msprobe.extensions.remote.messages import (
    Activate,
    Answer,
    Backward,
    Card,
    Cards,
    Draw,
    Failed,
    Forward,
    Gradients,
    Open,
    Probe,
    Ran,
    Request,
    Skipped,
    TensorForm,
    Unlike,
)
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.skip_reasons import Skip, SkipReason

# What may come back though the records hold less.
_ALWAYS_POSSIBLE = 64 * 2**20

# No more than this is reported of an error there.
_LONGEST_TEXT = 2000

_numbers = itertools.count(1)

_Answer = TypeVar("_Answer", bound=Answer)


class RemoteSide:
    """One call on a remote device; its gradients are those of the run that is kept there.

    Both directions raise Skip where the call cannot be run there, TargetError where it raises, MemoryError where memory
    runs out, LinkError where the link is lost.
    """

    def __init__(self, device: RemoteDevice) -> None:
        self._device = device
        self._number = next(_numbers)

    def forward(self, subject: Subject) -> Run:
        """Return the run of a recorded call, as CPU tensors. Raises DeviceError for any other."""
        call = subject.call
        if call is None:
            raise DeviceError(
                f"device {self._device.name!r} runs recorded calls only; a function of this process cannot be sent"
            )
        tensors = {path: packed(tensor) for path, tensor in subject.arguments.tensors()}
        request = Forward(
            record=str(call.name.forward),
            forward=forward_body(call.forward),
            backward=None if call.backward is None else backward_body(call.backward),
            seed=subject.seed,
            autocasts=subject.autocast is not None,
            off=bool(subject.changed),
            tensors={path: form for path, (form, _) in tensors.items()},
            memory=subject.memory,
        )
        answer, blobs = self._ran(subject, request, tensors)
        try:
            found = _unpacked(answer.tensors, blobs, _possible_bytes(subject))
            arguments = {path: found[number] for path, number in answer.arguments.items()}
            output = from_node(answer.output, found, arguments)
            run = Run(output, arguments, tuple(answer.written), {path: torch.empty(0) for path in answer.leaves})
            if not arguments.keys() >= set(run.written):
                raise FormError("an argument that was written to and is not there")
        except (FormError, IndexError, RecursionError) as error:
            self._refuse(error)
        self._device.loaded = self._number
        return run

    def backward(self, subject: Subject, run: Run, grad_outputs: Mapping[str, torch.Tensor]) -> side.Gradients:
        """Return the gradients of a run's leaves by path, for those of its outputs."""
        if not self._device.keeps(self._number):
            # Another call has run there since, or in a new process none.
            self.forward(subject)
        self._device.loaded = 0
        tensors = {path: packed(gradient) for path, gradient in grad_outputs.items()}
        request = Backward({path: form for path, (form, _) in tensors.items()})
        answer, blobs = self._asked(subject, request, Gradients, [blob for _, blob in tensors.values()])
        if isinstance(answer, Unlike):
            self._refuse(ValueError("that gradients are unlike"))
        try:
            found = _unpacked(answer.tensors, blobs, _possible_bytes(subject))
            gradients = {path: None if number is None else found[number] for path, number in answer.found.items()}
            if gradients.keys() != run.leaves.keys():
                raise FormError("gradients of other arguments")
        except (FormError, IndexError, RecursionError) as error:
            self._refuse(error)
        return gradients

    def _ran(
        self, subject: Subject, request: Forward, tensors: Mapping[str, tuple[TensorForm, memoryview]]
    ) -> tuple[Ran, list[bytearray]]:
        if self._device.draws_inputs and subject.drawn is not None:
            seed, narrow = subject.drawn
            drawn = Draw(seed, narrow, digest(tensors))
            answer, blobs = self._asked(subject, msgspec.structs.replace(request, drawn=drawn), Ran, [])
            if not isinstance(answer, Unlike):
                return answer, blobs
        # Also a call that fails there takes the place of the last one.
        self._device.loaded = 0
        answer, blobs = self._asked(subject, request, Ran, [blob for _, blob in tensors.values()])
        if isinstance(answer, Unlike):
            self._refuse(ValueError("that inputs are unlike, which were sent"))
        return answer, blobs

    def _asked(
        self, subject: Subject, request: Forward | Backward, kind: type[_Answer], tensors: list[memoryview]
    ) -> tuple[_Answer | Unlike, list[bytearray]]:
        answer, blobs = self._device.ask(request, kind, tensors, limit=_possible_bytes(subject))
        if isinstance(answer, Skipped):
            if answer.reason not in SkipReason.__members__:
                self._refuse(ValueError(f"the reason {answer.reason!r:.80}"))
            raise Skip(SkipReason[answer.reason], answer.detail[:_LONGEST_TEXT])
        if isinstance(answer, Failed):
            text = answer.text[:_LONGEST_TEXT]
            if answer.kind == "target":
                raise TargetError(text)
            if answer.kind == "memory":
                raise MemoryError(f"on the remote device: {text}")
            raise LinkError(f"the remote process could not run it: {text}", Breakdown.ERROR)
        return answer, blobs

    def _refuse(self, error: Exception) -> NoReturn:
        raise self._device.refused(str(error)) from None


def _possible_bytes(subject: Subject) -> float:
    """Return how much memory the results of a call may take: as much as was set aside for the call."""
    return _ALWAYS_POSSIBLE if subject.call is None else max(_ALWAYS_POSSIBLE, needed_bytes(subject.call))


def _unpacked(forms: list[TensorForm], blobs: list[bytearray], most: float) -> list[torch.Tensor]:
    if len(forms) != len(blobs):
        raise FormError(f"{len(blobs)} tensors, of which {len(forms)} are declared")
    return [unpacked(form, blob, most) for form, blob in zip(forms, blobs, strict=True)]


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
