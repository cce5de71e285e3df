"""The recipe of docs/integrations.md for log probabilities, with the functions of a framework."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.frameworks.started import run_module
from tests.support.runs import Checked


@pytest.mark.slow
@pytest.mark.nightly
def test_the_temperature_that_verl_divides_logits_by_is_named(
    pytester: pytest.Pytester, check: Callable[..., Checked]
) -> None:
    printed = run_module("verl_log_probabilities", pytester.path, pytester.path)
    distances = [float(line) for line in printed.splitlines()]
    assert len(distances) == 2
    assert max(distances) < 1e-5

    compared = check("--msprobe-compare=rollout", "--msprobe-golden=trainer", "--msprobe-match=inference", "-q")
    assert "as with temperature 0.6 (14 of 14 tokens" in compared.output
