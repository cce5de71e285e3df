"""Calls that one run alone made are named at the culprit whose inputs differ: they may be why."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe_hooks import record


def recorded(folder, scaled, backward=False):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    with record(folder, level="L1", task="tensor"):
        hidden = layer(torch.randn(8, 4))
        if scaled and not backward:
            for _ in range(5):
                hidden = torch.add(hidden, 0.5)
        result = torch.tanh(hidden)
        loss = torch.sum(result)
        if scaled and backward:
            loss = loss + torch.sum(torch.square(result))
        loss.backward()


@pytest.fixture
def summary(pytester):
    def run(target, golden):
        result = pytester.runpytest_inprocess(f"--msprobe-compare={target}", f"--msprobe-golden={golden}", "--tb=no")
        return [line.strip() for line in result.outlines]

    return run


def test_forward_calls_of_the_target_alone_are_named_nearest_first(pytester, summary):
    recorded(pytester.path / "target", scaled=True)
    recorded(pytester.path / "golden", scaled=False)
    lines = summary("target", "golden")
    at = next(number for number, line in enumerate(lines) if line.startswith("its inputs differ, too: input.0"))
    assert lines[at + 1] == (
        "before it the target alone called Torch.add.4.forward, Torch.add.3.forward, Torch.add.2.forward, "
        "Torch.add.1.forward and 1 more"
    )


def test_backward_calls_of_the_golden_run_alone_are_named(pytester, summary):
    recorded(pytester.path / "target", scaled=False)
    recorded(pytester.path / "golden", scaled=True, backward=True)
    named = [line for line in summary("target", "golden") if line.startswith("before it the golden run alone called")]
    assert len(named) == 1
    assert "Torch.square.0.backward" in named[0]


def test_nothing_is_named_where_both_made_the_same_calls(pytester, summary):
    for name in ("target", "golden"):
        recorded(pytester.path / name, scaled=False)
    assert not any("alone called" in line for line in summary("target", "golden"))
