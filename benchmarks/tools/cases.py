"""Cases that tools judge: a recorded call, and what a device that is right or wrong made of it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.calls.golden import golden_side
from pytest_msprobe.engine.replay.calls.side import Gradients, Run
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.outcomes import Skip
from tests.corpus.fault import Variant, VariantDevice, digest
from tests.corpus.trials import RecordedCall

# The device draws from one seed, and what a tool computes itself from another: no device has the CPU's generator.
SEED_OF_DEVICE, SEED_OF_CPU = 0, 1


class Planted(NamedTuple):
    """A device that is to be judged, and what is wrong with it.

    Attributes:
        kind: The row of the table in which it counts.
        name: What it counts as: found, or accused, if one of its cases is called wrong.
        variant: What it runs another way; None for the CPU itself.
        is_faulty: Whether results that differ from the CPU's are wrong.
    """

    kind: str
    name: str
    variant: Variant | None
    is_faulty: bool


class Results(NamedTuple):
    """What came of a call.

    Attributes:
        outputs: The tensors that it returned, in their order.
        arguments: The arguments that it overwrote or may overwrite, by path: ``args.0``.
        gradients: The gradients of its arguments, by path; None of one on which nothing depends.
    """

    outputs: list[torch.Tensor]
    arguments: dict[str, torch.Tensor]
    gradients: Gradients

    def tensors(self) -> dict[str, torch.Tensor | None]:
        """Return all of them, each under a name of its own."""
        outputs = {f"output.{number}": tensor for number, tensor in enumerate(self.outputs)}
        gradients = {f"gradient of {path}": tensor for path, tensor in self.gradients.items()}
        return {**outputs, **self.arguments, **gradients}


@dataclass(frozen=True)
class Case:
    """One call as a device computed it: what every tool is given.

    Attributes:
        recorded: The call as it was recorded, and the file of its dump.
        planted: The device, and whether it is wrong: no tool may look at it.
        device: Returns the device as it was before the call, for a tool that runs the call on it.
        trial: The call with its inputs, ``trial.subject.arguments``, and ``grad_outputs``, the gradients that arrive.
        result: What came from the device.
    """

    recorded: RecordedCall
    planted: Planted
    device: Callable[[], VariantDevice]
    trial: Trial
    result: Results

    @property
    def name(self) -> str:
        """The name of the call: ``Torch.matmul.0``."""
        return self.recorded.call.name.key

    @property
    def draws(self) -> bool:
        """Whether the call draws random numbers, of which no two devices draw the same."""
        return self.trial.randomness is not None

    @functools.cached_property
    def on_cpu(self) -> Results | None:
        """What the CPU computes in the dtypes of the call; None where it cannot."""
        torch.manual_seed(SEED_OF_CPU)
        run = self.trial.baseline
        return self._expected(run, self.trial.baseline_gradients if self.result.gradients else {})

    @functools.cached_property
    def in_float64(self) -> Results | None:
        """What the CPU computes in float64, in the dtypes of the device's result; None where it cannot."""
        subject = self.trial.subject
        side = golden_side(subject.operation, subject.arguments, torch.float64)
        torch.manual_seed(SEED_OF_CPU)
        run = self.trial.forward_on(side)
        gradients = self.trial.gradients_on(side, run) if self.result.gradients else {}
        return self._expected(run, gradients)

    def _expected(self, run: Run | None, gradients: Gradients | None) -> Results | None:
        """Return what a run made, in the dtypes of the device's result; an argument that it left alone as it was."""
        if run is None or gradients is None:
            return None
        computed, result = results_of(run, gradients), self.result
        inputs = dict(self.trial.subject.arguments.tensors())
        return Results(
            [_like(each, other) for each, other in zip(computed.outputs, result.outputs, strict=False)],
            {path: _like(computed.arguments.get(path, inputs[path]), each) for path, each in result.arguments.items()},
            {path: _like(each, result.gradients.get(path)) for path, each in computed.gradients.items()},
        )


def results_of(run: Run, gradients: Gradients) -> Results:
    """Return copies of what a run returned and overwrote, and its gradients."""
    outputs = [tensor.detach().clone() for _, tensor in tensors_with_paths([run.output])]
    arguments = {path: each.detach().clone() for path, each in run.arguments.items()}
    return Results(outputs, arguments, {path: _copy(each) for path, each in gradients.items()})


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Return a copy in memory: there is none of a gradient that autograd knows to be zero."""
    return None if gradient is None else gradient.detach().clone()


_Tensor = TypeVar("_Tensor", torch.Tensor, "torch.Tensor | None")


def _like(tensor: _Tensor, other: torch.Tensor | None) -> _Tensor:
    """Return a tensor rounded to the dtype of another, if both are there and only their precision differs."""
    if tensor is None or other is None or tensor.is_complex() != other.is_complex():
        return tensor
    return tensor.to(other.dtype) if tensor.is_floating_point() or tensor.is_complex() else tensor


class Cases:
    """Recorded calls, of which devices make cases: only of those where a device's results differ from the CPU's."""

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self.calls = calls
        self._policy = Policy.load("default")
        self._healthy: dict[int, int | None] = {}

    def of(self, planted: Planted) -> Iterator[Case]:
        """Yield the cases of a device, which keeps its memory from call to call."""
        memory: dict[Any, Any] = {}
        for number, recorded in enumerate(self.calls):
            variant = planted.variant
            if variant is not None and (
                not variant.touches(recorded.call.name.api)
                or (variant.backward and recorded.call.backward is None)
                or self._digest(number) is None
            ):
                continue
            before = copied(memory)
            case = self._case(recorded, planted, _device(variant, memory), functools.partial(_fresh, variant, before))
            if case is not None and (variant is None or digest([*case.result]) != self._digest(number)):
                yield case

    def _digest(self, number: int) -> int | None:
        """Return a checksum of what the CPU makes of a call; None where that cannot be had."""
        if number not in self._healthy:
            healthy = Planted("", "", None, is_faulty=False)
            case = self._case(self.calls[number], healthy, VariantDevice(), VariantDevice)
            self._healthy[number] = None if case is None else digest([*case.result])
        return self._healthy[number]

    def _case(
        self, recorded: RecordedCall, planted: Planted, device: VariantDevice, again: Callable[[], VariantDevice]
    ) -> Case | None:
        trial = Replay(recorded.call, ReplayConfig(device, self._policy, TorchFramework())).trial
        torch.manual_seed(SEED_OF_DEVICE)
        try:
            run = trial.target
            result = results_of(run, {})
            if recorded.call.backward is not None and trial.differentiates:
                gradients = {path: _copy(gradient) for path, gradient in trial.target_gradients.items()}
                result = result._replace(gradients=gradients)
        except (Skip, TargetError):
            # What the CPU refuses, or a device does not survive, leaves no result to judge.
            return None
        return Case(recorded, planted, again, trial, result)


def _device(variant: Variant | None, memory: dict[Any, Any]) -> VariantDevice:
    device = VariantDevice(variant)
    device._memory = memory
    return device


def _fresh(variant: Variant | None, memory: dict[Any, Any]) -> VariantDevice:
    return _device(variant, copied(memory))


def copied(value: Any) -> Any:
    """Return a copy of what a device remembers, generators included."""
    if isinstance(value, torch.Generator):
        return torch.Generator().set_state(value.get_state())
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(each) for each in value)
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
