"""Failures in 32 bits of calls that compute in 16: what the limit is in the roundoffs that they are made of."""

from __future__ import annotations

import re

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.devices import Altered
from tests.support.replays.functions import check_function

SAID = re.compile(
    r"up to (\S+) unit roundoffs of float32 \((\S+) allowed\), which are (\S+) of (\w+)'s \((\S+) allowed\)"
)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).float()


def wrong(dtype: torch.dtype, policy: Policy) -> tuple[DirectionResult, torch.Tensor, torch.Tensor]:
    """Return the verdict on a product that is half as large again, that product and the right one."""
    torch.manual_seed(0)
    x, y = torch.rand(32, 32).to(dtype), torch.rand(32, 32).to(dtype)
    setup = ReplayConfig(Altered(lambda func, args, kwargs: 1.5 * func(*args, **kwargs)), policy, TorchFramework())
    (result,) = check_function(product, (x, y), {}, name="Call.0", setup=setup)
    return result, 1.5 * product(x, y), x.double() @ y.double()


@pytest.mark.parametrize(("dtype", "unit"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_an_error_is_counted_in_roundoffs_of_the_16_bits_that_computed_it(
    dtype: torch.dtype, unit: float, default_policy: Policy
) -> None:
    result, target, golden = wrong(dtype, default_policy)
    found = SAID.search(result.verdict.reason)
    assert found is not None, result.verdict.reason
    error = float(((target - golden).abs() / golden.abs().clamp_min(golden.abs().mean())).max())
    assert float(found[1]) == pytest.approx(error / 2.0**-24, rel=1e-3)
    assert float(found[3]) == pytest.approx(error / unit, rel=1e-3)
    assert float(found[5]) == pytest.approx(float(found[2]) * 2.0**-24 / unit, rel=1e-3)
    assert found[4] == str(dtype).removeprefix("torch.")


def test_an_error_of_float32_is_counted_in_its_own_roundoffs_alone(default_policy: Policy) -> None:
    result, _, _ = wrong(torch.float32, default_policy)
    assert " unit roundoffs (" in result.verdict.reason
    assert "which are" not in result.verdict.reason
