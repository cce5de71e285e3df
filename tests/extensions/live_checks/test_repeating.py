"""Live checks that make each judged call once more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pytest_msprobe
from msprobe_hooks.errors import ConfigError
from tests.support.dumps.bit_flips import FlippedBit


def step(model: torch.nn.Module) -> torch.Tensor:
    loss = F.dropout(torch.tanh(model(torch.ones(4, 8))), 0.5).square().sum()
    loss.backward()
    return loss.detach()


def test_a_result_that_is_another_when_the_call_is_repeated_is_wrong() -> None:
    model = torch.nn.Linear(8, 8)
    # A bit too low for an accuracy standard.
    with FlippedBit("tanh", 1, bit=0), pytest_msprobe.live(repeat=True, on_failure="fail", apis=["tanh"]) as checks:
        step(model)
        found = list(checks.failed)
        checks.failed.clear()
    assert [each.record for each in found] == ["Torch.tanh.0.forward"]
    assert "nondeterministic: 1 of 1 repeated runs differ from the first, in 1 of 32 elements" in found[0].reason


def test_a_training_passes_with_the_same_bits() -> None:
    model = torch.nn.Linear(8, 8)
    torch.manual_seed(0)
    plain = [step(model), torch.rand(1)]
    torch.manual_seed(0)
    with pytest_msprobe.live(repeat=True) as checks:
        watched = [step(model), torch.rand(1)]
    assert checks.counts["pass"] > 3
    assert not checks.failed
    assert all(map(torch.equal, plain, watched))


def test_a_wrong_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^repeat is 3; allowed: True, False$"), pytest_msprobe.live(repeat=3):
        pass
