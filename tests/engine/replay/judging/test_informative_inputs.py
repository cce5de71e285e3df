"""Inputs that show nothing are drawn again, and verdicts that say little say so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import LITTLE_JUDGED
from tests.support.dumps.dump_files import forward, tensor, value


def warmer(func: Any, args: Any, kwargs: Any) -> Any:
    return func(args[0] * 1.25, *args[1:], **kwargs)


# Logits of which only the extrema are known, and probabilities that were not one-hot.
SOFTMAX = forward(
    tensor(16, 64, low=-3e4, high=3e4, requires_grad=True),
    value(-1),
    output=[tensor(16, 64, low=0.0, high=0.2, Mean=1 / 64, Norm=0.8)],
)
GRADIENTS = {"input": [tensor(16, 64)], "output": [tensor(16, 64, low=-0.1, high=0.1)]}


def test_one_hot_results_are_drawn_again_where_the_recorded_ones_were_not(
    recorder: Any, check: Any, device_that: Any
) -> None:
    call = recorder.keep("Functional.softmax.0", SOFTMAX, GRADIENTS)
    healthy, faulty = check(call), check(call, device=device_that(warmer))
    assert (healthy.forward.outcome, healthy.backward.outcome) == ("pass", "pass")
    assert (faulty.forward.outcome, faulty.backward.outcome) == ("fail", "fail")
    assert LITTLE_JUDGED not in healthy.forward.extras


def test_a_backward_record_alone_gets_the_inputs_that_it_has_after_its_forward_record(
    recorder: Any, default_policy: Any
) -> None:
    call = recorder.keep("Functional.softmax.0", SOFTMAX, GRADIENTS)
    both, alone = (Replay(call, ReplayConfig(CpuDevice(), default_policy, TorchFramework())) for _ in range(2))
    both.forward()
    both.backward()
    alone.backward()
    [[(_, first)], [(_, second)]] = (list(replay.trial.subject.arguments.tensors()) for replay in (both, alone))
    assert torch.equal(first, second)


def test_gradients_that_vanish_are_drawn_again(recorder: Any, check: Any) -> None:
    saturated = forward(tensor(64, low=-9e4, high=9e4, requires_grad=True), output=[tensor(64, low=0.0, high=1.0)])
    call = recorder.keep("Torch.sigmoid.0", saturated, {"input": [tensor(64)], "output": [tensor(64)]})
    assert LITTLE_JUDGED not in check(call).backward.extras


def test_what_stays_empty_passes_and_says_that_little_was_judged(recorder: Any, check: Any) -> None:
    never = forward(
        tensor(64, dtype="int64", low=0, high=10**9), value(7), output=[tensor(64, dtype="bool", low=False, high=True)]
    )
    result = check(recorder.keep("Torch.eq.0", never)).forward
    assert result.outcome == "pass"
    assert "one or two values" in result.extras[LITTLE_JUDGED]


def test_results_that_were_constant_when_recorded_say_nothing(recorder: Any, check: Any) -> None:
    constant = forward(tensor(64, low=-3.0, high=-1.0), output=[tensor(64, low=0.0, high=0.0)])
    assert check(recorder.keep("Torch.relu.0", constant)).forward.extras == {}


@pytest.mark.parametrize(
    "recorded",
    [
        tensor(1, low=math.nan, high=math.nan, Mean=math.nan, Norm=math.nan, Max_except_inf_nan=math.nan),
        tensor(low=math.nan, high=math.nan, Mean=math.nan, Norm=math.nan),
        tensor(3, low=math.nan, high=math.nan, Max_except_inf_nan=4.0, Min_except_inf_nan=4.0),
    ],
    ids=["NaN alone", "a scalar that is NaN", "NaN and one number"],
)
def test_a_recorded_nan_is_not_said_to_have_been_more_than_drawn_values(
    recorder: Any, check: Any, recorded: dict[str, Any]
) -> None:
    shape = recorded["shape"]
    call = recorder.keep("Torch.log.0", forward(tensor(*shape, low=-1.0, high=-1.0), output=[recorded]))
    found = check(call).forward
    assert found.outcome == "pass"
    assert "one or two values" not in found.extras[LITTLE_JUDGED]


@pytest.mark.parametrize(
    ("values", "little"),
    [
        ([-1.0, -2.0], "golden's results are NaN or infinite throughout"),
        ([-1.0, 2.0], None),
        ([-1.0, 0.0], "golden's results are NaN or infinite throughout"),
        ([0.0, 0.0], None),
        ([], None),
    ],
    ids=["NaN", "NaN and a number", "NaN and infinite", "infinite", "empty"],
)
def test_a_pass_without_any_finite_golden_result_says_that_little_was_judged(
    recorder: Any, check: Any, values: list[float], little: str | None
) -> None:
    found = check(recorder.Torch.log(torch.tensor(values))).forward
    assert (found.outcome, found.extras.get(LITTLE_JUDGED)) == ("pass", little)


def test_eight_bit_results_that_begin_with_nan_are_looked_at_too(recorder: Any, check: Any) -> None:
    found = check(recorder.Tensor.to(torch.tensor([math.nan, 1.0]), torch.float8_e4m3fn)).forward
    assert (found.outcome, found.extras.get(LITTLE_JUDGED)) == ("pass", None)


def test_a_gradient_without_any_finite_golden_result_says_that_little_was_judged(recorder: Any, check: Any) -> None:
    found = check(recorder.Torch.rsqrt(torch.full((3,), math.nan, requires_grad=True))).backward
    assert (found.outcome, found.extras[LITTLE_JUDGED]) == ("pass", "golden's results are NaN or infinite throughout")


def test_random_regions_say_that_little_was_judged(recorder: Any, check: Any) -> None:
    call = recorder.Functional.fractional_max_pool2d(torch.randn(1, 2, 8, 8), 2, 4)
    assert "random regions" in check(call).forward.extras[LITTLE_JUDGED]


@pytest.mark.parametrize(
    "values",
    [
        torch.eye(64).index_fill(0, torch.tensor([3]), 0.01),
        torch.full((64, 64), math.nan),
        torch.zeros(64, 64, dtype=torch.float64),
    ],
    ids=["one-hot but for a row", "nan", "constant"],
)
def test_results_of_one_or_two_values_are_noticed_in_a_tensor_of_any_kind(
    values: torch.Tensor, recorder: Any, default_policy: Any
) -> None:
    call = recorder.Torch.neg(torch.randn(64, 64))
    replay = Replay(
        call, ReplayConfig(CpuDevice(), default_policy, TorchFramework()), function=lambda x: values.to(x.dtype)
    )
    assert LITTLE_JUDGED in replay.forward().extras
