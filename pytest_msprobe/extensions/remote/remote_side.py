"""A side of a check on a remote device: it is sent the call's record and inputs, and makes the call by itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar

import msgspec
import torch

from msprobe_hooks.dump.json_records import backward_body, forward_body
from pytest_msprobe.engine.replay.calls import side
from pytest_msprobe.engine.replay.calls.arguments import Subject, TargetError
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.trials.memory_budget import needed_bytes
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.codec import FormError, digest, from_node, packed, unpacked
from pytest_msprobe.extensions.remote.messages import (
    Answer,
    Backward,
    Draw,
    Failed,
    Forward,
    Gradients,
    Ran,
    Request,
    Skipped,
    TensorForm,
    Unlike,
)
from pytest_msprobe.results.outcomes import Breakdown, Skip, skip_reason

# What may come back though the records hold less.
_ALWAYS_POSSIBLE = 64 * 2**20

# No more than this is reported of an error there.
_LONGEST_TEXT = 2000

_numbers = itertools.count(1)

_Answer = TypeVar("_Answer", bound=Answer)


class Card(Protocol):
    """The device that a side is computed on, a `remote_device.RemoteDevice`, as the side needs it."""

    name: str
    #: The number of the call that the process there keeps, 0 for none.
    loaded: int

    @property
    def draws_inputs(self) -> bool:
        """Return whether inputs that were drawn here are to be drawn there again, and not sent."""

    def keeps(self, number: int) -> bool:
        """Return whether the process there still keeps the call of this number."""

    def ask(
        self, request: Request, answer: type[_Answer], blobs: Sequence[memoryview] = (), *, limit: float = 0
    ) -> tuple[_Answer | Unlike | Skipped | Failed, list[bytearray]]:
        """Return the answer to a request with its bytes. Raises LinkError where the link is lost."""

    def refused(self, what: str) -> LinkError:
        """End the link, since what came back cannot be, and return what to raise."""


class RemoteSide:
    """One call on a remote device; its gradients are those of the run that is kept there.

    Both directions raise Skip where the call cannot be run there, TargetError where it raises, MemoryError where memory
    runs out, LinkError where the link is lost.
    """

    def __init__(self, device: Card) -> None:
        self._device = device
        self._number = next(_numbers)

    def forward(self, subject: Subject) -> Run:
        """Return the run of a recorded call, as CPU tensors. Raises DeviceError for any other."""
        origin = subject.origin
        if origin is None:
            raise DeviceError(
                f"device {self._device.name!r} runs recorded calls only; a function of this process cannot be sent"
            )
        call = origin.call
        tensors = {path: packed(tensor) for path, tensor in subject.arguments.tensors()}
        request = Forward(
            record=str(call.name.forward),
            forward=forward_body(call.forward),
            backward=None if call.backward is None else backward_body(call.backward),
            seed=subject.seed,
            autocasts=subject.autocast is not None,
            off=bool(subject.changed),
            tensors={path: form for path, (form, _) in tensors.items()},
            memory=origin.memory,
        )
        answer, blobs = self._ran(subject, request, tensors)
        try:
            tensors_there = _unpacked(answer.tensors, blobs, _possible_bytes(subject))
            arguments = {path: tensors_there[number] for path, number in answer.arguments.items()}
            output = from_node(answer.output, tensors_there, arguments)
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
            tensors_there = _unpacked(answer.tensors, blobs, _possible_bytes(subject))
            gradients = {
                path: None if number is None else tensors_there[number] for path, number in answer.found.items()
            }
            if gradients.keys() != run.leaves.keys():
                raise FormError("gradients of other arguments")
        except (FormError, IndexError, RecursionError) as error:
            self._refuse(error)
        return gradients

    def _ran(
        self, subject: Subject, request: Forward, tensors: Mapping[str, tuple[TensorForm, memoryview]]
    ) -> tuple[Ran, list[bytearray]]:
        origin = subject.origin
        if self._device.draws_inputs and origin is not None and origin.drawn is not None:
            seed, narrow = origin.drawn
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
            reason = skip_reason(answer.reason)
            if reason is None:
                self._refuse(ValueError(f"the reason {answer.reason!r:.80}"))
            raise Skip(reason, answer.detail[:_LONGEST_TEXT])
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
    origin = subject.origin
    return _ALWAYS_POSSIBLE if origin is None else max(_ALWAYS_POSSIBLE, needed_bytes(origin.call))


def _unpacked(forms: list[TensorForm], blobs: list[bytearray], most: float) -> list[torch.Tensor]:
    if len(forms) != len(blobs):
        raise FormError(f"{len(blobs)} tensors, of which {len(forms)} are declared")
    return [unpacked(form, blob, most) for form, blob in zip(forms, blobs, strict=True)]
