"""Live checks of a training with faults in all its calls from one step on, on a clock that no machine moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.live_checks.judge import Judge, NamedPolicy
from pytest_msprobe.extensions.live_checks.scheduling import Selection
from pytest_msprobe.extensions.live_checks.session import LiveChecks, judged_live
from tests.corpus.trainings import Step

# By turns, so that weights neither vanish nor grow without end, and with them what is wrong.
_FACTORS = 0.95, 1 / 0.95


@dataclass
class Costs:
    """What takes how many seconds: a call of the training, the backward pass of a step, and what live checks do."""

    call: float
    backward: float = 1e-3
    look: float = 15e-6
    forward_check: float = 3e-3
    backward_check: float = 5e-3
    now: float = field(default=0.0, init=False)

    def spend(self, seconds: float) -> None:
        """Move the clock on."""
        self.now += seconds


class EverythingFaulty(TorchFunctionMode):
    """Multiplies what calls return and the gradients that they pass on, where that is one float tensor.

    ``factor`` is 1 while nothing is wrong. ``tick`` is called at each call that computes something.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self.factor = 1.0
        self._tick = tick

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # Live checks look at tensors, with functions that return what tensors are like.
        if isinstance(result, Tensor):
            self._tick()
        if self.factor == 1 or not isinstance(result, Tensor) or not result.is_floating_point() or result._is_view():
            return result
        if any(result is each for each in args):
            return result if torch.is_grad_enabled() and result.requires_grad else result.mul_(self.factor)
        return _Wrong.apply(result, self.factor) if torch.is_grad_enabled() and result.requires_grad else result


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return result * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        # The training makes no such call, so that live checks must not see it.
        with torch._C.DisableTorchFunction():
            return gradients[0] * ctx.factor, None


def faulty_apis(make: Callable[[], Step]) -> set[str]:
    """Return the APIs and directions of a training in which the faults can be seen: all is checked once."""
    torch.manual_seed(0)
    step = make()
    with EverythingFaulty(lambda: None) as faults, _live(Costs(0), per_api=1) as checks:
        faults.factor = _FACTORS[0]
        # Optimizers make other calls once they have a state.
        for _ in range(2):
            step()
    return {_api_and_direction(result.record) for result in checks.failed}


def found_after(make: Callable[[], Step], costs: Costs, begin: int, steps: int) -> tuple[dict[str, int], LiveChecks]:
    """Return for each API and direction after how many faulty steps it was found, and the checks with share 0.2.

    The faults begin at step ``begin`` of ``steps``.
    """
    torch.manual_seed(0)
    step, found, seen = make(), dict[str, int](), 0
    with EverythingFaulty(lambda: costs.spend(costs.call)) as faults, _live(costs, share=0.2) as checks:
        for number in range(steps):
            faults.factor = _FACTORS[number % 2] if number >= begin else 1.0
            step()
            costs.spend(costs.backward)
            for result in checks.failed[seen:]:
                found.setdefault(_api_and_direction(result.record), number - begin)
            seen = len(checks.failed)
            checks.step()
    return found, checks


@contextmanager
def _live(costs: Costs, **options: Any) -> Iterator[LiveChecks]:
    """Check with costs that are the same on each machine."""
    with ExitStack() as patches:
        for owner, name, seconds in (
            (Selection, "choose", costs.look),
            (Judge, "forward", costs.forward_check),
            (Judge, "backward", costs.backward_check),
        ):
            patches.enter_context(mock.patch.object(owner, name, _spending(costs, seconds, getattr(owner, name))))
        setup, options = (
            ReplayConfig(CpuDevice(), Policy.load("default"), TorchFramework()),
            {"on_failure": "fail", **options},
        )
        yield patches.enter_context(judged_live(options, setup, NamedPolicy("default"), "", lambda: costs.now))


def _spending(costs: Costs, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        costs.spend(seconds)
        return function(*args)

    return run


def _api_and_direction(record: str) -> str:
    api, _, direction = record.rsplit(".", 2)
    return f"{api} {direction}"
