from __future__ import annotations

import pytest
import torch

from msprobe_standards import Policy, judge, standard

GOLDEN = torch.linspace(1, 2, 100, dtype=torch.float64)


@pytest.mark.parametrize(("error", "outcome"), [(0.0009, "pass"), (0.0011, "fail")])
def test_the_greatest_error_is_below_the_number_of_msprobes_code(error: float, outcome: str) -> None:
    target = GOLDEN.clone()
    target[7] += error
    assert judge(target, GOLDEN, standard="mindspore_check").outcome == outcome


def test_the_number_of_msprobes_manual_is_a_limit_away() -> None:
    strict = standard("mindspore_check", max_abs_err=0.0001)
    assert judge(GOLDEN + 0.0005, GOLDEN, standard=strict).outcome == "fail"
    assert judge(GOLDEN + 0.00005, GOLDEN, standard=strict).outcome == "pass"


def test_the_cosine_counts_where_errors_are_small() -> None:
    small = torch.tensor([1e-4, 0.0], dtype=torch.float64)
    verdict = judge(small.flip(0), small, standard="mindspore_check")
    assert verdict.outcome == "fail"
    assert "cosine_sim 0 (above 0.99 allowed)" in verdict.reason


def test_zeros_on_one_side_have_the_cosine_of_msprobes_formula() -> None:
    zeros = torch.zeros(4, dtype=torch.float64)
    assert judge(zeros, zeros, standard="mindspore_check").outcome == "pass"
    assert judge(zeros + 1e-5, zeros, standard="mindspore_check").outcome == "pass"


def test_nan_on_one_side_fails() -> None:
    target = GOLDEN.clone()
    target[0] = torch.nan
    assert judge(target, GOLDEN, standard="mindspore_check").outcome == "fail"


def test_rules_for_mindspores_cpu_kernels_hold_on_a_cpu_only() -> None:
    policy = Policy.load("default")
    chosen = {
        device: policy.select("tanh", output_dtype=torch.float32, framework="mindspore", device=device)
        for device in ("cpu", "npu")
    }
    assert chosen["npu"] == policy.select("tanh", output_dtype=torch.float32, device="npu")
    assert judge(GOLDEN.float() * (1 + 1e-4), GOLDEN, standard=chosen["cpu"]).outcome == "pass"
    assert judge(GOLDEN.float() * (1 + 1e-4), GOLDEN, standard=chosen["npu"]).outcome == "fail"
