"""Kernels that change many tensors at once are judged by what they wrote, whether torch counts it or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.results.result import DirectionResult
from tests.support.dumps.dump_files import tensor

ADAM = {
    "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False,
}  # fmt: skip
SGD = {
    "weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False, "maximize": False,
    "is_first_step": False,
}  # fmt: skip
SCALED = {"grad_scale": torch.tensor(1024.0), "found_inf": torch.tensor(0.0)}


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(3, 4).to(dtype) for _ in range(2)]


def adamw(recorder: Any, dtype: torch.dtype = torch.float32, **more: torch.Tensor) -> Call:
    lists = [parameters(dtype) for _ in range(3)]
    squares, steps = [torch.rand(3, 4).to(dtype) + 0.1 for _ in range(2)], [torch.tensor(7.0) for _ in range(2)]
    return recorder.Torch._fused_adamw_(*lists, squares, [], steps, **ADAM, **more)


CALLS = {
    "adamw": adamw,
    "adamw of bfloat16": lambda recorder: adamw(recorder, torch.bfloat16),
    "adamw with a scale": lambda recorder: adamw(recorder, **SCALED),
    "sgd": lambda recorder: recorder.Torch._fused_sgd_(parameters(), parameters(), parameters(), **SGD),
    "foreach": lambda recorder: recorder.Torch._foreach_add_(parameters(), parameters(), alpha=0.5),
}


def judged(check: Any, call: Call, **options: Any) -> DirectionResult:
    result: DirectionResult = check(call, **options).forward
    return result


@pytest.mark.parametrize("make", CALLS.values(), ids=CALLS.keys())
def test_optimizers_pass_on_a_healthy_device_and_fail_where_nothing_happens(
    make: Any, recorder: Any, check: Any, device_that: Any
) -> None:
    call = make(recorder)
    assert judged(check, call).outcome == "pass"
    assert judged(check, call, device=device_that(lambda *_: None)).outcome == "fail"


def test_what_is_wrong_is_found_in_whichever_tensor_it_is(recorder: Any, check: Any, device_that: Any) -> None:
    def wrong_moment(func: Any, args: Any, kwargs: Any) -> None:
        func(*args, **kwargs)
        args[2][1].mul_(1.01)

    result = judged(check, adamw(recorder), device=device_that(wrong_moment))
    assert [output.path for output in result.outputs if output.verdict.outcome == "fail"] == ["changed.args.2.1"]


def test_gradients_of_a_call_that_returns_nothing_are_those_of_what_it_changed(
    recorder: Any, check: Any, device_that: Any
) -> None:
    def halved(func: Any, args: Any, kwargs: Any) -> Any:
        return func(args[0], args[1], args[2] / 2)

    body = {"input_args": [tensor(8), {"type": "slice", "value": [None, 4, None]}, tensor(4, requires_grad=True)]}
    arrived = {"input": [tensor(8)], "output": [tensor(8), tensor(4)]}
    call = recorder.keep("Tensor.__setitem__.0", body | {"input_kwargs": {}, "output": [None]}, arrived)
    assert check(call).backward.outcome == "pass"
    assert check(call, device=device_that(halved)).backward.outcome == "fail"
