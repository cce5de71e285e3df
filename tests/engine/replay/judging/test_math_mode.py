from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import MATH_MODE, CallResult
from tests.corpus.cards import CUT, NEAREST, Card, Round, card, to_bits
from tests.corpus.fault import VariantDevice
from tests.support.replays.functions import check_function

TF32 = {"matmul": "tf32", "conv": "tf32", "rnn": "tf32"}


def device(rounding: Round | None, **modes: Any) -> VariantDevice:
    return VariantDevice(card("card", "", Card(rounding, rounding).kernel, apis="", **modes))


@pytest.fixture
def linear(recorder: Any) -> Any:
    x, weight = torch.rand(30, 256), torch.randn(40, 256)
    return recorder.Functional.linear(x.requires_grad_(), weight.requires_grad_(), torch.randn(40))


def test_a_card_in_the_mode_that_it_states_passes_and_the_verdict_says_so(check: Any, linear: Any) -> None:
    result: CallResult = check(linear, device=device(to_bits(10), **TF32))
    for each in (result.forward, result.backward):
        assert each is not None
        assert each.verdict.outcome == "pass"
        assert each.extras[MATH_MODE] == "TF32"
        assert each.verdict.reason.startswith("under TF32, which the device says is on; by the dtype alone ")


@pytest.mark.parametrize("whole", [NEAREST, CUT])
@pytest.mark.parametrize("bits", [10, 11])
def test_rounding_and_cutting_off_are_both_right(check: Any, linear: Any, bits: int, whole: Round) -> None:
    name = {10: "tf32", 11: "hf32"}[bits]
    result = check(linear, device=device(to_bits(bits, whole), matmul=name))
    assert (result.forward.verdict.outcome, result.backward.verdict.outcome) == ("pass", "pass")


@pytest.mark.parametrize("whole", [NEAREST, CUT])
def test_two_bits_less_are_found_and_the_failure_names_the_mode(check: Any, linear: Any, whole: Round) -> None:
    result = check(linear, device=device(to_bits(8, whole), **TF32))
    for each in (result.forward, result.backward):
        assert each.verdict.outcome == "fail"
        assert each.verdict.reason.endswith("; under TF32, which the device says is on")
        assert "_error " in each.verdict.reason
        assert each.verdict.metrics["rms_scaled_error"] > each.verdict.limits["rms_scaled_error"]


def test_a_card_that_states_nothing_is_judged_by_the_dtype(check: Any, linear: Any) -> None:
    result = check(linear, device=device(to_bits(10)))
    assert result.forward.verdict.outcome == "fail"
    assert MATH_MODE not in result.forward.extras


def test_strict_judges_by_the_dtype_alone(check: Any, linear: Any) -> None:
    result = check(linear, device=device(to_bits(10), **TF32), math_mode="strict")
    assert result.forward.verdict.outcome == "fail"
    assert "TF32" not in result.forward.verdict.reason


def test_a_mode_takes_no_part_where_the_dtype_is_kept(check: Any, linear: Any) -> None:
    result = check(linear, device=device(None, **TF32))
    assert result.forward.verdict.outcome == "pass"
    assert MATH_MODE not in result.forward.extras


def test_a_mode_of_other_operations_explains_nothing(check: Any, linear: Any) -> None:
    assert check(linear, device=device(to_bits(10), conv="tf32")).forward.verdict.outcome == "fail"


def test_the_mode_of_products_does_not_explain_a_function(check: Any, recorder: Any) -> None:
    call = recorder.Torch.exp(torch.randn(100))
    wrong = card("card", "", lambda launch: launch.run() * 1.0001, apis="", **TF32)
    result = check(call, device=VariantDevice(wrong))
    assert result.forward.verdict.outcome == "fail"
    assert MATH_MODE not in result.forward.extras


def test_a_policy_without_a_rule_for_the_mode_judges_by_the_dtype(linear: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rules: [{standard: benchmark}]")
    setup = ReplayConfig(device(to_bits(10), **TF32), Policy.load(path), TorchFramework())
    assert Replay(linear, setup).forward().verdict.outcome == "fail"


def test_a_rule_of_a_policy_of_ones_own_may_ask_for_the_mode(linear: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rules: [{standard: benchmark}, {standard: thousandth, math_mode: [tf32], apis: [linear]}]")
    setup = ReplayConfig(device(to_bits(10), **TF32), Policy.load(path), TorchFramework())
    verdict = Replay(linear, setup).forward().verdict
    assert (verdict.outcome, verdict.standard) == ("pass", "thousandth")


@pytest.mark.parametrize("modes", [{}, {"conv": "hf32"}])
def test_msprobes_policy_allows_hf32_of_convolutions_where_it_is_stated(recorder: Any, modes: dict[str, str]) -> None:
    x, weight = 100 * torch.randn(1, 8, 12, 12), torch.randn(4, 8, 3, 3)
    call = recorder.Functional.conv2d(x, weight)
    result = Replay(
        call, ReplayConfig(device(to_bits(11), **modes), Policy.load("msprobe-1.2"), TorchFramework())
    ).forward()
    assert result.verdict.outcome == ("pass" if modes else "fail")


def test_a_function_of_the_users_own_is_judged_in_the_mode_unless_a_standard_is_named(default_policy: Policy) -> None:
    x, weight = torch.rand(30, 256), torch.randn(256, 40).requires_grad_()
    setup = ReplayConfig(device(to_bits(10), **TF32), default_policy, TorchFramework())

    def outcomes(**more: Any) -> list[str]:
        results = check_function(
            lambda a, b: (a @ b).relu(), [x, weight], {}, name="Functional.mine.0", setup=setup, **more
        )
        return [result.verdict.outcome for result in results]

    assert outcomes(backward=True) == ["pass", "pass"]
    assert outcomes(standard=default_policy.select("linear", output_dtype=torch.float32)) == ["fail"]


def saturating(launch: Any) -> Any:
    return launch.run().clamp(-65504, 65504)


@pytest.mark.parametrize(("modes", "outcome"), [({"saturation": True}, "pass"), ({}, "fail")])
def test_the_greatest_finite_value_is_right_where_golden_overflows_in_saturation_mode(
    check: Any, recorder: Any, modes: dict[str, bool], outcome: str
) -> None:
    call = recorder.Torch.mul(torch.full((6,), 300.0).half(), torch.arange(6).half() * 100)
    result = check(call, device=VariantDevice(card("card", "", saturating, apis="", **modes))).forward
    assert result.verdict.outcome == outcome
    assert ("under saturation, which the device says is on" in result.verdict.reason) == (outcome == "pass")


@pytest.mark.parametrize("wrong", [0.0, 65472.0, -65504.0, math.nan])
def test_saturation_allows_nothing_but_the_greatest_value_of_the_right_sign(
    check: Any, recorder: Any, wrong: float
) -> None:
    call = recorder.Torch.mul(torch.full((2,), 300.0).half(), torch.full((2,), 300.0).half())
    variant = card("card", "", lambda launch: torch.full_like(launch.run(), wrong), apis="", saturation=True)
    assert check(call, device=VariantDevice(variant)).forward.verdict.outcome == "fail"


class Saturating(SimDevice):
    """Stops at a magnitude when it rounds to float8, and says that it saturates."""

    name = "saturating"

    def __init__(self, greatest: float) -> None:
        self._greatest = greatest

    def reduced_precision(self) -> ReducedPrecision:
        return ReducedPrecision(saturation=True)

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return func(*(each.clamp(-self._greatest, self._greatest) for each in args), **kwargs)


def to_float8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e5m2)


@pytest.mark.parametrize(("greatest", "outcome"), [(57344.0, "pass"), (49152.0, "fail")])
def test_float8_that_saturates_is_judged_like_any_dtype(default_policy: Policy, greatest: float, outcome: str) -> None:
    setup = ReplayConfig(Saturating(greatest), default_policy, TorchFramework())
    (result,) = check_function(to_float8, (torch.tensor([1.0, 1e6, -1e6]),), {}, name="Call.0", setup=setup)
    assert result.verdict.outcome == outcome


def test_what_is_judged_with_its_dropout_switched_off_is_judged_in_the_mode(check: Any, recorder: Any) -> None:
    query, key, value = torch.randn(2, 4, 32, 16), torch.randn(2, 4, 32, 16), torch.randn(2, 4, 32, 16)
    call = recorder.Functional.scaled_dot_product_attention(query, key, value, dropout_p=0.2)

    def outcome(bits: int) -> str:
        return check(call, device=device(to_bits(bits), **TF32)).forward.verdict.outcome

    assert (outcome(10), outcome(7)) == ("pass", "fail")
