"""Calls whose randomness is switched off in a second run: what is judged of it, and a device that errs in it alone."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.results.result import LITTLE_JUDGED, CallResult, DirectionResult, OutputResult


class OffAtRest(SimDevice):
    """Errs by a hundredth in one direction where nothing is dropped out; random results are right."""

    name = "off-at-rest"

    def __init__(self, direction: str) -> None:
        self._direction = direction

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        output = func(*args, **kwargs)
        is_random = any(value in RANDOM for value in (*args, *kwargs.values()) if isinstance(value, float))
        return output if is_random or record.endswith(".backward") else map_tensors(self._off, output)

    def _off(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        if self._direction == "forward":
            return tensor * 1.01
        wrong = tensor.clone()
        if wrong.requires_grad:
            wrong.register_hook(lambda gradient: gradient * 1.01)
        return wrong


#: Probabilities and slopes of calls that are not those of the second run.
RANDOM = (0.3, 0.5, 0.7)


def second(result: DirectionResult) -> list[OutputResult]:
    """Return what was judged in the second run."""
    return [output for output in result.outputs if output.path.startswith("not_random.")]


def assert_judged_whole(result: CallResult) -> None:
    """Require that both directions pass, and that both runs of each were judged."""
    assert result.backward is not None
    for direction, kind in ((result.forward, "output"), (result.backward, "grad")):
        assert direction.outcome == "pass", direction.reason
        assert LITTLE_JUDGED not in direction.extras
        assert {output.verdict.outcome for output in direction.outputs} == {"pass"}
        assert [output for output in second(direction) if output.path.startswith(f"not_random.{kind}.")]


def assert_wrong_at_rest(result: DirectionResult, off: str) -> None:
    """Require that the second run alone fails, and that the reason says how its randomness was switched off."""
    assert result.outcome == "fail"
    assert f"with {off}: " in result.reason
    assert result.reason.startswith("not_random.")
    first = [output for output in result.outputs if output not in second(result)]
    assert {output.verdict.outcome for output in first} <= {"pass"}
