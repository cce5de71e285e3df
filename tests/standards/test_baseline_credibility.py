"""What a baseline in 16 bits counts for: as far as a correct device could err."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional

from msprobe_standards import Policy, Verdict, judge, measure, standard

ROWS = 8192
BF16, FP16 = torch.bfloat16, torch.float16
DEFAULT = Policy.load("default")

Gradient = tuple[str, Callable[..., torch.Tensor], tuple[torch.Tensor, ...], int]


def drawn(*shape: int, mean: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) + mean


def rows(of: int) -> torch.Tensor:
    return torch.randint(0, of, (ROWS,), generator=torch.Generator().manual_seed(of))


def layer_norm(features: int, wanted: int) -> Gradient:
    inputs = (drawn(ROWS, features), drawn(features, mean=1), drawn(features))
    return "layer_norm", lambda x, w, b: functional.layer_norm(x, [features], w, b), inputs, wanted


# An API, the call, its inputs, and of which of them the gradient is a sum over the rows; -1 is the result itself.
SUMS: dict[str, Gradient] = {
    "layer norm's weight": layer_norm(64, 1),
    "layer norm's bias": layer_norm(64, 2),
    "wide layer norm's bias": layer_norm(256, 2),
    "token types": ("embedding", lambda w: functional.embedding(rows(2), w), (drawn(2, 64),), 0),
    "x[index]": ("__getitem__", lambda w: w[rows(8)], (drawn(8, 64),), 0),
    "embedding_bag": (
        "embedding_bag",
        lambda w: functional.embedding_bag(rows(8), w, torch.arange(0, ROWS, 4), mode="sum"),
        (drawn(8, 64),),
        0,
    ),
    "index_put": (
        "index_put",
        lambda x, values: x.index_put((rows(8),), values, accumulate=True),
        (drawn(8, 64), drawn(ROWS, 64, mean=1)),
        -1,
    ),
    "grid_sample": (
        "grid_sample",
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        (drawn(1, 2, 3, 3, mean=1), 0.3 * drawn(1, 64, ROWS // 64, 2)),
        0,
    ),
}


@cache
def results(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return golden in float32 and what the CPU gives in 16 bits, for arriving gradients of mean and deviation 0.5."""
    _, call, inputs, wanted = SUMS[name]

    def run(computed: torch.dtype) -> torch.Tensor:
        given = [each.to(dtype).to(computed).requires_grad_() for each in inputs]
        result = call(*given)
        if wanted < 0:
            return result.detach()
        arriving = (0.5 * drawn(*result.shape) + 0.5).to(dtype).to(computed)
        return torch.autograd.grad(result, given[wanted], arriving)[0]

    return run(torch.float32), run(dtype)


def judged(name: str, dtype: torch.dtype, target: torch.Tensor, policy: Policy = DEFAULT) -> Verdict:
    golden, cpu = results(name, dtype)
    by = policy.select(SUMS[name][0], output_dtype=dtype, backward=SUMS[name][3] >= 0)
    return judge(target, golden, standard=by, baseline=lambda: cpu)


@pytest.mark.parametrize("factor", [0.0, -0.5, 0.6])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_is_wrong_by_its_own_size_fails_however_the_cpu_errs(
    name: str, dtype: torch.dtype, factor: float
) -> None:
    golden, _ = results(name, dtype)
    assert judged(name, dtype, (factor * golden).to(dtype)).outcome == "fail"


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_a_device_that_adds_up_in_float32_passes(name: str, dtype: torch.dtype) -> None:
    golden, _ = results(name, dtype)
    # Another order of addition moves some sums across the middle of two 16-bit numbers.
    other_order = golden * (1 + 2**-22 * drawn(golden.numel()).reshape(golden.shape).sign())
    assert judged(name, dtype, other_order.to(dtype)).outcome == "pass"


@pytest.mark.parametrize("parts", [4, 16, 64])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_a_device_that_rounds_the_sums_of_parts_passes(dtype: torch.dtype, parts: int) -> None:
    arriving = (0.5 * drawn(ROWS, 64) + 0.5).to(dtype).float()
    by = DEFAULT.select("layer_norm", output_dtype=dtype, backward=True)
    cpu = torch.zeros(64, dtype=dtype)
    for row in arriving.to(dtype):
        cpu += row
    total = torch.zeros(64, dtype=dtype)
    for part in arriving.chunk(parts):
        total += part.sum(0).to(dtype)
    assert judge(total, arriving.sum(0), standard=by, baseline=cpu).outcome == "pass"


@pytest.mark.parametrize("name", SUMS)
def test_the_cpu_itself_passes_and_the_verdict_says_that_it_errs(name: str) -> None:
    golden, cpu = results(name, BF16)
    verdict = judged(name, BF16, cpu)
    assert verdict.outcome == "pass"
    assert measure(cpu, golden)["rms_scaled_error"] > 16
    assert verdict.reason.startswith("excused, the CPU's own kernel gives the same result")


def test_a_recorded_baseline_counts_whatever_it_errs_by() -> None:
    golden, cpu = results("layer norm's bias", BF16)
    by = DEFAULT.select("layer_norm", output_dtype=BF16, backward=True)
    nearly = (cpu.float() * 1.05).to(BF16)
    assert judge(nearly, golden, standard=by, recorded=lambda _: cpu).outcome == "pass"
    assert judge(nearly, golden, standard=by, baseline=cpu).outcome == "fail"


def test_errors_that_roundings_of_the_inputs_explain_count_in_full() -> None:
    # Sums that cancel to a hundredth of their terms: one rounding of the terms moves them by a hundred units.
    terms = drawn(400, 64).double()
    terms[-1] = -terms[:-1].sum(0) + 0.01 * terms[0].abs()
    given = terms.to(BF16).double()
    golden, units = given.sum(0), 2.0**-8

    def rounded(seed: int) -> torch.Tensor:
        signs = torch.randint(0, 2, given.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        return (given * (1 + units * signs)).sum(0)

    by = DEFAULT.select("sum", output_dtype=BF16)
    target, cpu = rounded(1).to(BF16), rounded(2).to(BF16)
    assert measure(cpu, golden)["rms_scaled_error"] > 50
    verdict = judge(target, golden, standard=by, baseline=cpu, moved=lambda: [rounded(3), rounded(4)])
    assert verdict.outcome == "pass"
    assert judge(target, golden, standard=by, baseline=cpu).outcome == "fail"
    assert (
        judge(target * 5, golden, standard=by, baseline=cpu, moved=lambda: [rounded(3), rounded(4)]).outcome == "fail"
    )


@pytest.mark.parametrize("policy", ["msprobe-1.2", "msprobe-26"])
def test_policies_of_msprobe_judge_as_before(policy: str) -> None:
    by: Any = Policy.load(policy).select("layer_norm", output_dtype=BF16, backward=True, recorded_baseline=True)
    golden, cpu = results("layer norm's bias", BF16)
    numbers = measure(cpu, golden, bounds=by.bounds(BF16))
    assert by.credible(numbers) is numbers


@pytest.mark.parametrize(("wrong", "most"), [(0, 0.04), (1024, 0.75), (3000, 1.0)])
def test_the_share_of_wrong_small_values_has_a_limit_that_can_limit(wrong: int, most: float) -> None:
    assert tail_limit(wrong) < most


def test_a_share_is_not_limited_where_all_values_of_the_baseline_are_wrong() -> None:
    assert tail_limit(4096) == 1


def tail_limit(wrong: int) -> float:
    """Return the limit for a baseline of 4096 values of which so many are wrong by their own size."""
    golden, by = drawn(4096).double(), standard("benchmark")
    factors = torch.ones(4096).index_fill(0, torch.arange(wrong), 2.0)
    numbers = [measure(each.bfloat16(), golden, bounds=by.bounds(BF16)) for each in (golden, golden * factors)]
    return by.decide(*numbers).limits.get("tail_share", 1.0)
