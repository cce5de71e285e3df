"""Live checks of MindSpore's dynamic graph mode: its calls in torch's terms, and which of them cannot be judged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import Tensor

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.extensions.mindspore.call_recording import observers, recorded, recording
from msprobe_hooks.extensions.mindspore.context import process_rank, require_pynative
from msprobe_hooks.extensions.mindspore.gradients import MindSporeElements, takes_gradient
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.session import Model, Observer
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.values.pytree import map_leaves
from pytest_msprobe.extensions.live_checks.recorder import KeptElements, LiveRecorder
from pytest_msprobe.extensions.live_checks.scheduling import signature
from pytest_msprobe.extensions.mindspore.framework import MindSporeFramework, MindSporeNpu, works_in_place
from pytest_msprobe.extensions.mindspore.jit_functions import from_numpy, to_torch


class MindSporeKeptElements(KeptElements, MindSporeElements):
    """The elements of a record of MindSpore."""

    __slots__ = ()


class MindSporeLiveRecorder(LiveRecorder, MindSporeRecorder):
    """Has calls of MindSpore judged: copies of its tensors, as torch's on the CPU."""

    kept_class = MindSporeKeptElements

    @classmethod
    def setup(cls, setup: ReplayConfig) -> ReplayConfig:
        """Return what its checks have in common, on the device that MindSpore computes on."""
        device: CpuDevice = CpuDevice()
        if mindspore.get_context("device_target") != "CPU":
            device = MindSporeNpu()
            device.index = mindspore.get_context("device_id")
        return replace(setup, device=device, framework=MindSporeFramework())

    def start(self, rank: int | None) -> bool:
        """Look at calls from here on. Raises ConfigError in graph mode, where there are none."""
        require_pynative()
        return super().start(rank)

    def rank(self) -> int | None:
        """Return this process's rank."""
        return process_rank()

    def observers(self, model: Model | None) -> list[Observer]:
        """Return what sees calls of functions, of the primitives that the cells of a model hold, and compiled ones."""
        return observers(recording(self), recorded(self), model)

    def kind(self, name: str, args: Any, kwargs: Any) -> Hashable:
        """Return what calls share that are alike, and whether they are differentiated."""
        return signature(name, self.is_grad_enabled(), args, kwargs, _looks)

    def obstacle(self, name: str, args: Any, kwargs: Any) -> str | None:
        """Return why a compiled function is left out; whatever else is seen here can be judged or is skipped."""
        return "a compiled function, whose calls would run as the training's" if name.startswith("Jit.") else None

    def copy(self, tensor: Tensor) -> torch.Tensor:
        """Return a copy on the CPU."""
        return to_torch(tensor).clone()

    def before(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arguments as they are now."""
        copies: dict[int, torch.Tensor] = {}

        def copy(leaf: Any) -> Any:
            # One tensor that is given twice is one here too.
            if isinstance(leaf, Tensor):
                return copies.setdefault(id(leaf), self._in_torch(leaf))
            return leaf

        arguments: tuple[Any, dict[str, Any]] = map_leaves(copy, tuple(args)), map_leaves(copy, dict(kwargs))
        return arguments

    def after(self, arguments: tuple[Any, Any], originals: tuple[Any, Any], output: Any, name: str) -> Any:
        """Return the output. MindSpore counts no versions: what has other bits than before was changed."""
        for before, tensor in zip(tensors_in(arguments, torch.Tensor), tensors_in(originals, Tensor), strict=True):
            now = to_torch(tensor)
            if not _same_bits(before, now):
                _write(before, now)
        api = parse_api_name(name).api
        if works_in_place(api):
            changed, tensor = tensors_in(arguments, torch.Tensor)[0], tensors_in(originals, Tensor)[0]
            _write(changed, to_torch(tensor))
            return None if output is None else changed

        def convert(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return self._in_torch(leaf)
            if isinstance(leaf, np.ndarray):
                return from_numpy(leaf)
            return str(leaf) if isinstance(leaf, mindspore.Type) else leaf

        return map_leaves(convert, output)

    def gradients(self, gradients: Sequence[Any]) -> list[torch.Tensor | None]:
        """Return copies of the gradients; whole numbers have none that counts."""
        return [
            self.copy(gradient) if gradient is not None and gradient.is_floating_point() else None
            for gradient in gradients
        ]

    def _in_torch(self, tensor: Tensor) -> torch.Tensor:
        copy = self.copy(tensor)
        is_differentiable = copy.is_floating_point() or copy.is_complex()
        return copy.requires_grad_(is_differentiable and takes_gradient(tensor))


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(values)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.detach().reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def _looks(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), takes_gradient(value)
    return str(value) if isinstance(value, mindspore.Type) else None
