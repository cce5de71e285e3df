"""The whole check of a call: both directions, seeds, autocast, recorded tensors, and ``check_call``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from msprobe_hooks.dump.schema import TensorElement
from msprobe_standards import Policy
from pytest_msprobe import check_call
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import CallResult


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def test_the_backward_direction_stands_alone(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Torch.exp(x(3, 4))
    alone = Replay(call, ReplayConfig(CpuDevice(), default_policy, TorchFramework())).backward()
    together = Replay(call, ReplayConfig(CpuDevice(), default_policy, TorchFramework()))
    together.forward()
    assert alone.verdict == together.backward().verdict
    assert alone.record == "Torch.exp.0.backward"


def test_seeds_change_the_inputs_and_nothing_else_does(recorder: Any, check: Any) -> None:
    seen: list[torch.Tensor] = []

    class Watching(SimDevice):
        name = "watching"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.append(args[0].detach().clone())
            return func(*args, **kwargs)

    call, other = recorder.Torch.exp(x(3, 4).detach()), recorder.Torch.sin(x(3, 4).detach())
    for each, seed in ((call, 0), (other, 0), (call, 0), (call, 1)):
        check(each, device=Watching(), seed=seed)
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[3])


def test_deprecated_apis_raise_no_warning(recorder: Any, check: Any) -> None:
    call = recorder.Functional.upsample(x(1, 2, 3, 3), scale_factor=2)
    assert check(call).forward.verdict.outcome == "pass"


def test_autocast_is_replayed(recorder: Any, check: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        call = recorder.Torch.mm(x(3, 4), x(4, 5))
    assert call.forward.output[0].dtype == "torch.bfloat16"
    result = check(call)
    assert (result.forward.verdict.outcome, result.backward.verdict.outcome) == ("pass", "pass")
    assert result.forward.outputs[0].target_dtype == "torch.bfloat16"
    assert result.forward.outputs[0].golden_dtype == "torch.float64"


def test_real_data_are_used_where_there_are_any(recorder: Any, check: Any, tmp_path: Path) -> None:
    call = recorder.Torch.exp(torch.zeros(3))
    values = torch.tensor([1.0, 2.0, 3.0])
    torch.save(values, tmp_path / "x.pt")
    element = TensorElement("torch.Tensor", "torch.float32", (3,), max=0.0, min=0.0, data_name="x.pt")
    stored = type(call)(
        call.name, type(call.forward)("", [element], {}, call.forward.output, {}), call.backward, tmp_path
    )
    seen: list[torch.Tensor] = []

    class Watching(SimDevice):
        name = "watching"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.append(args[0])
            return func(*args, **kwargs)

    check(stored, device=Watching())
    check(stored, device=Watching(), real_data=False)
    assert seen[0].tolist() == [1.0, 2.0, 3.0]
    assert seen[1].tolist() == [0.0, 0.0, 0.0]


def test_check_call_checks_both_directions_with_a_policy_by_name(recorder: Any) -> None:
    result = check_call(recorder.Torch.exp(x(3)), device=CpuDevice(), policy="msprobe-1.2", seed=3)
    assert isinstance(result, CallResult)
    assert result.forward.verdict.outcome == "pass"
    assert result.backward is not None
    assert result.backward.verdict.outcome == "pass"
    without = check_call(recorder.Torch.exp(torch.ones(3)), device=CpuDevice())
    assert without.backward is None
