from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.calls.arguments import Arguments


@pytest.mark.parametrize("number", [3, -5, 0.1, 1 / 3, 10**400, float("inf")])
def test_a_number_that_is_no_power_of_two_may_be_rounded(number: Any) -> None:
    assert Arguments((torch.ones(2), number), {}, frozenset()).has_rounded_scalars
    assert Arguments((torch.ones(2),), {"alpha": number}, frozenset()).has_rounded_scalars


@pytest.mark.parametrize("value", [0, 1, -4, 0.25, -0.0, True, "mean", None, torch.tensor(0.3)])
def test_a_power_of_two_and_what_is_no_number_are_exact(value: Any) -> None:
    assert not Arguments((torch.ones(2), value), {}, frozenset()).has_rounded_scalars
