"""Whatever is wrong in what a device gives, its values, form, gradients or changes, fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.sim import SimDevice


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


class WrongGradients(SimDevice):
    """Computes results rightly, and gradients a tenth too large."""

    name = "wrong"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        result = func(*args, **kwargs)
        return tuple(gradient * 1.1 for gradient in result) if record.endswith(".backward") else result


def altered(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def call(func: Any, args: Any, kwargs: Any) -> Any:
        return change(func(*args, **kwargs))

    return call


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y: y + 0.01, ""),
        (lambda y: y[:2], "shape"),
        (lambda y: y.double(), "dtype"),
        (lambda y: [y, y], "is not in golden"),
        (lambda y: torch.where(torch.arange(y.numel()).view_as(y) == 3, math.nan, y), "NaN|nan"),
        (lambda y: y.half(), "dtype"),
    ],
    ids=["value", "shape", "wider dtype", "container", "one NaN", "narrower dtype"],
)
def test_every_kind_of_wrong_result_fails(
    recorder: Any, check: Any, device_that: Any, change: Any, reason: str
) -> None:
    verdict = check(recorder.Torch.exp(x(3, 4)), device=device_that(altered(change))).forward.verdict
    assert verdict.outcome == "fail"
    assert any(word in verdict.reason for word in reason.split("|"))


def test_a_wrong_gradient_fails_though_the_result_is_right(recorder: Any, check: Any) -> None:
    result = check(recorder.Functional.layer_norm(x(4, 8), (8,), x(8), bias=x(8)), device=WrongGradients())
    assert result.forward.verdict.outcome == "pass"
    assert result.backward.verdict.outcome == "fail"
    assert {output.path for output in result.backward.outputs} == {"grad.args.0", "grad.args.2", "grad.kwargs.bias"}


@pytest.mark.parametrize("device", [SimDevice(), WrongGradients()], ids=["right", "wrong"])
def test_gradients_of_a_function_in_python_that_passes_no_out_on_are_judged(
    recorder: Any, check: Any, device: Any
) -> None:
    result = check(recorder.Functional.normalize(x(4, 8), dim=-1, out=None), device=device)
    assert result.forward.verdict.outcome == "pass"
    assert result.backward.verdict.outcome == ("fail" if isinstance(device, WrongGradients) else "pass")


def test_a_missing_gradient_fails(recorder: Any, check: Any) -> None:
    class Forgetful(SimDevice):
        name = "forgetful"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            found = func(*args, **kwargs)
            return (None, *found[1:]) if record.endswith(".backward") else found

    assert check(recorder.Torch.mul(x(3), x(3)), device=Forgetful()).backward.verdict.outcome == "fail"


@pytest.mark.parametrize("place", ["args", "kwargs"])
def test_a_wrong_running_statistic_fails(recorder: Any, check: Any, device_that: Any, place: str) -> None:
    def forget_to_update(func: Any, args: Any, kwargs: Any) -> Any:
        kept = {key: value.clone() if "running" in key else value for key, value in kwargs.items()}
        return func(args[0], *(each.clone() for each in args[1:3]), *args[3:], **kept)

    mean, var = torch.zeros(3), torch.ones(3)
    if place == "args":
        call = recorder.Functional.batch_norm(x(4, 3), mean, var, None, None, True)
    else:
        call = recorder.Functional.batch_norm(x(4, 3), running_mean=mean, running_var=var, training=True)
    assert check(call).forward.verdict.outcome == "pass"
    assert check(call, device=device_that(forget_to_update)).forward.verdict.outcome == "fail"


def test_a_setitem_that_writes_nothing_fails(recorder: Any, check: Any, device_that: Any) -> None:
    call = recorder.Tensor["__setitem__"](torch.zeros(4, 6), slice(1, 3), 5.0)
    assert check(call).forward.verdict.outcome == "pass"
    assert check(call, device=device_that(lambda *_: None)).forward.verdict.outcome == "fail"


@pytest.mark.parametrize(("api", "far"), [("exp", 40.0), ("sinh", 40.0), ("special.erfcx", -9.0)])
def test_a_value_that_is_lost_among_far_greater_ones_fails(
    api: str, far: float, recorder: Any, check: Any, device_that: Any
) -> None:
    call = recorder.Torch[api](torch.tensor([1.0, 1.0, *[far] * 38]))
    lost = device_that(altered(lambda y: torch.cat((torch.zeros(2), y[2:]))))
    assert check(call).forward.outcome == "pass"
    assert check(call, device=lost).forward.outcome == "fail"
