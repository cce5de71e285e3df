"""Live checks of PyTorch: how its calls are seen, and which of them cannot be judged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.session import Model, Observer
from msprobe_hooks.torch.apis import api_table
from msprobe_hooks.torch.elements import TorchElements
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.recording_mode import RecordingMode
from msprobe_hooks.torch.session import Operators, process_rank
from msprobe_hooks.torch.threads import NewThreads, ThisThread
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.side import may_work_in_place
from pytest_msprobe.engine.replay.ops.lookup import operations
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.extensions.live_checks.call_sampling import signature
from pytest_msprobe.extensions.live_checks.judge import JUDGED_DEVICES
from pytest_msprobe.extensions.live_checks.observed_call import on_cpu
from pytest_msprobe.extensions.live_checks.recorder import KeptElements, LiveRecorder


class TorchKeptElements(KeptElements, TorchElements):
    """The elements of a record of PyTorch."""

    __slots__ = ()


class TorchLiveRecorder(LiveRecorder, TorchRecorder):
    """Has calls of PyTorch judged: its tensors are those that are judged."""

    kept_class = TorchKeptElements

    @classmethod
    def setup(cls, setup: ReplayConfig) -> ReplayConfig:
        """Return what its checks have in common, once torch has listed its operations.

        It filters warnings for it, after which Python gives again those that it gave once: better now than among those
        of the training.
        """
        operations()
        return setup

    def rank(self) -> int | None:
        """Return this process's rank."""
        return process_rank()

    def observers(self, _: Model | None) -> list[Observer]:
        """Return what sees calls on this thread and on those that begin, or on this one alone operators."""
        if self.settings.level == "aten":
            return [Operators(self)]
        mode = RecordingMode(self, api_table())
        return [ThisThread(mode), NewThreads(mode)]

    def kind(self, name: str, args: Any, kwargs: Any) -> Hashable:
        """Return what calls share that are alike, their modes among it."""
        modes = torch.is_grad_enabled(), torch._C._is_any_autocast_enabled()
        return signature(name, modes, args, kwargs, _looks)

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy on the CPU, laid out alike."""
        return on_cpu(tensor)

    def before(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arguments."""
        return args, kwargs

    def after(self, seen: tuple[Any, Any], given: tuple[Any, Any], output: Any, name: str) -> Any:
        """Return the output."""
        return output

    def gradients(self, found: Sequence[Any]) -> list[Tensor | None]:
        """Return the gradients."""
        return list(found)

    def obstacle(self, name: str, args: Any, kwargs: Any) -> str | None:
        """Return why a call with these arguments cannot be judged, None where it can."""
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "inside a transform of torch.func"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return "inside the capture of a CUDA graph"
        tensors = tensors_in((args, kwargs), Tensor)
        if any(tensor.is_inference() for tensor in tensors):
            # These do not say whether they were written to.
            operated = operation(parse_api_name(name).api)
            if may_work_in_place(operated, Arguments(args, kwargs, frozenset())):
                return "may write to a tensor of inference mode"
        return next(filter(None, map(_obstacle_of, tensors)), None)


def _looks(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        shape = () if value.is_nested else tuple(value.shape)
        return value.dtype, shape, value.requires_grad, value.device
    return value if isinstance(value, torch.dtype) else None


def _obstacle_of(tensor: Tensor) -> str | None:
    # A DTensor says of itself that it is an instance of Parameter.
    if type(tensor) not in (Tensor, Parameter):
        return f"takes a {type(tensor).__name__}"
    return None if tensor.device.type in JUDGED_DEVICES else f"on the device {tensor.device.type}"
