"""Records run as they arrive, in the remote process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from msprobe_hooks.dump.memory_layouts import span
from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import TensorElement, backward_record, forward_record
from msprobe_standards import Policy
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.devices.card import compute_something
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.devices.math_modes import reduced_precision
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Subject, TargetError, build_arguments
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.framework import Framework
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.rng import run_seeded
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.strides import ALIGNMENT, as_laid_out, memory_size, whole_memory, with_bits_of
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.errors import UserError
from pytest_msprobe.extensions.remote.codec import as_node, digest, packed, unpacked, without_gaps
from pytest_msprobe.extensions.remote.messages import (
    Activate,
    Answer,
    AtArgument,
    AtTensor,
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
from pytest_msprobe.results.outcomes import Skip, describe_error

# What an argument has before and behind it where its layout was made.
_MOST_AROUND = 3 * ALIGNMENT


class Server:
    """State that requests are asked of: a device once it was opened, and the call that ran last."""

    def __init__(self) -> None:
        self._devices = DeviceRegistry()
        self._references = ReferenceRegistry()
        self._policy = Policy.load("default")
        self._opened: tuple[Framework, Device] | None = None
        self._trial: Trial | None = None

    def answer(self, request: Request, blobs: list[bytearray]) -> tuple[Answer, list[memoryview]]:
        """Do what is asked, and return the answer with the bytes that follow it."""
        try:
            with suppress_warnings():
                return self._answer(request, blobs)
        except Skip as skip:
            return Skipped(skip.reason.value, skip.detail), []
        except TargetError as error:
            return self._failed("target", str(error)), []
        except UserError as error:
            return Failed("device", str(error)), []
        except Exception as error:
            # Whatever else is raised is reported to the one who asked; the process goes on.
            return self._failed("memory" if is_out_of_memory(error) else "error", describe_error(error)), []

    def _answer(self, request: Request, blobs: list[bytearray]) -> tuple[Answer, list[memoryview]]:
        match request:
            case Open():
                return self._open(request), []
            case Activate(index):
                self._device.activate(index)
                return self._card(), []
            case Probe():
                compute_something(self._device)
                return self._card(), []
            case Forward():
                tensors = (
                    _unpacked(request.tensors, blobs) if request.drawn is None else self._drawn(request.drawn, request)
                )
                return (Unlike(), []) if tensors is None else self._forward(request, tensors)
            case Backward():
                return self._backward(_unpacked(request.tensors, blobs))

    @property
    def _device(self) -> Device:
        assert self._opened is not None, "nothing was opened"
        return self._opened[1]

    def _open(self, request: Open) -> Cards:
        if request.plugin:
            plugin = importlib.import_module(request.plugin)
            for kind, registry in (("devices", self._devices), ("references", self._references)):
                getattr(plugin, f"pytest_msprobe_register_{kind}", lambda registry: None)(registry)
        framework = framework_named(request.framework)
        self._opened = framework, framework.device(self._devices, request.device)
        return Cards(self._device.count())

    def _card(self) -> Card:
        assert self._opened is not None
        framework, device = self._opened
        modes = {name: value for name, value in asdict(reduced_precision(device)).items() if value}
        return Card(framework.describe(device), hardware(device), framework.math_modes(device), modes)

    def _forward(self, request: Forward, tensors: Mapping[str, torch.Tensor]) -> tuple[Answer, list[memoryview]]:
        self._trial = None
        self._trial = trial = self._trial_of(request, tensors)
        run = run_seeded(trial)
        sent = _Sent()
        paths = {id(tensor): path for path, tensor in run.arguments.items()}
        # What lies between the elements of an argument is judged too.
        get = trial.device.get
        arguments = {path: sent.add(_with_memory(get, tensor), tensor) for path, tensor in run.arguments.items()}
        returned = {place: path for path, place in run.returned_at().items()}

        def at(path: str, tensor: torch.Tensor) -> AtTensor | AtArgument:
            argument = returned.get(path, paths.get(id(tensor)))
            if argument is not None:
                return AtArgument(argument)
            return AtTensor(sent.add(without_gaps(get(tensor)), tensor))

        places = iter([path for path, _ in tensors_with_paths(run.output)])
        output = as_node(run.output, lambda tensor: at(next(places), tensor))
        return Ran(output, arguments, list(run.written), list(run.leaves), sent.forms), sent.blobs

    def _drawn(self, draw: Draw, request: Forward) -> dict[str, torch.Tensor] | None:
        """Return the arguments that the seed gives; None where they are others than the one who asks has."""
        assert self._opened is not None
        call = self._opened[0].in_torch_terms(_call(request))
        arguments = build_arguments(call, seed=draw.seed, real_data=False, narrow=draw.narrow, memory=request.memory)
        tensors = dict(arguments.tensors())
        own_digest = digest({path: packed(tensor) for path, tensor in tensors.items()})
        return tensors if own_digest == draw.digest else None

    def _trial_of(self, request: Forward, tensors: Mapping[str, torch.Tensor]) -> Trial:
        assert self._opened is not None
        framework, device = self._opened

        def given(element: TensorElement, path: str) -> torch.Tensor:
            return tensors[path]

        setup = ReplayConfig(
            device, self._policy, framework, self._references, seed=request.seed, memory=request.memory
        )
        trial = Replay(_call(request), setup, given).trial
        subject: Subject = replace(trial.subject, seed=request.seed)
        if not request.autocasts:
            subject = replace(subject, autocast=None)
        trial = Trial(subject, device)
        if not request.off:
            return trial
        assert trial.switched_off is not None, "its randomness has no switch"
        return trial.switched_off

    def _backward(self, gradients: dict[str, torch.Tensor]) -> tuple[Answer, list[memoryview]]:
        trial = self._trial
        assert trial is not None, "no call is kept"
        # The graph of a call is used up by its gradients.
        self._trial = None
        trial.grad_outputs = gradients
        sent = _Sent()
        numbers = {
            path: None if gradient is None else sent.add(without_gaps(trial.device.get(gradient)), gradient)
            for path, gradient in trial.target_gradients.items()
        }
        return Gradients(numbers, sent.forms), sent.blobs

    def _failed(self, kind: Literal["target", "memory", "error"], text: str) -> Failed:
        """Return a failure; after it the card may be of no use, and then a new process is."""
        try:
            if self._opened is not None:
                compute_something(self._device)
        except Exception as error:
            return Failed(
                kind, f"{text}\nAfterwards, the card there no longer works: {describe_error(error)}", ends=True
            )
        return Failed(kind, text)


def _with_memory(get: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as ``get`` brings it to the CPU, with what lies between and around its elements."""
    if not is_plain(tensor) or memory_size(tensor) - span(tensor.shape, tensor.stride()) > _MOST_AROUND:
        return as_laid_out(get, tensor)
    place = get(whole_memory(tensor)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return with_bits_of(place, tensor)


class _Sent:
    """The tensors of an answer, numbered as they are added."""

    def __init__(self) -> None:
        self.forms: list[TensorForm] = []
        self.blobs: list[memoryview] = []

    def add(self, fetched: torch.Tensor, original: torch.Tensor) -> int:
        form, blob = packed(fetched)
        if original.requires_grad:
            form = msgspec.structs.replace(form, requires_grad=True)
        self.forms.append(form)
        self.blobs.append(blob)
        return len(self.forms) - 1


def _unpacked(forms: Mapping[str, TensorForm], blobs: list[bytearray]) -> dict[str, torch.Tensor]:
    return {path: unpacked(form, blob) for (path, form), blob in zip(forms.items(), blobs, strict=True)}


def _call(request: Forward) -> Call:
    name = parse_api_name(request.record)
    body: Any = request.backward
    backward = None if body is None else backward_record(name.backward, body)
    return Call(name, forward_record(name.forward, request.forward), backward, Path())
