"""Small probabilities: those of a softmax count as wrong however far below its scale they are."""

from __future__ import annotations

import pytest
import torch

from msprobe_standards import Policy, judge

SCORES = 30 * torch.randn(64, 128, generator=torch.Generator().manual_seed(0))


def probabilities(scores: torch.Tensor, least: float = -torch.inf) -> torch.Tensor:
    powers = (scores - scores.amax(-1, keepdim=True)).clamp_min(least).exp()
    return powers / powers.sum(-1, keepdim=True)


def verdict(target: torch.Tensor, golden: torch.Tensor, api: str = "softmax") -> str:
    standard = Policy.load("default").select(api, output_dtype=target.dtype)
    return judge(target, golden, standard=standard, baseline=golden.to(target.dtype)).outcome


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("api", ["softmax", "softmin", "_softmax", "special.softmax"])
def test_a_cut_exponential_fails(dtype: torch.dtype, api: str) -> None:
    scores = SCORES.to(dtype).double()
    golden = probabilities(scores)
    assert verdict(probabilities(scores, least=-20).to(dtype), golden, api) == "fail"
    assert verdict(golden.masked_fill(golden < 1e-10, 0).to(dtype), golden, api) == "fail"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flushed_subnormals_pass(dtype: torch.dtype) -> None:
    golden = probabilities(4 * SCORES.to(dtype).double())
    target = golden.to(dtype)
    flushed = target.masked_fill(target < torch.finfo(dtype).tiny, 0)
    assert not torch.equal(flushed, target)
    assert verdict(flushed, golden) == "pass"


def test_exponentials_that_round_their_argument_pass() -> None:
    golden = probabilities(SCORES.double())
    powers = torch.exp2((SCORES - SCORES.amax(-1, keepdim=True)) * 1.4426950408889634)
    assert verdict(powers / powers.sum(-1, keepdim=True), golden) == "pass"
    assert verdict(torch.log_softmax(SCORES, -1).exp(), golden) == "pass"


def test_differences_of_scores_that_are_rounded_to_bfloat16_do_not_lose_a_probability() -> None:
    scores = SCORES.bfloat16()
    steps = (scores - scores.amax(-1, keepdim=True)).float().exp()
    target = (steps / steps.sum(-1, keepdim=True)).bfloat16()
    golden = probabilities(scores.double())
    standard = Policy.load("default").select("softmax", output_dtype=torch.bfloat16)
    judged = judge(target, golden, standard=standard, baseline=golden.bfloat16())
    assert judged.metrics["tail_share"] == 0
