"""Inputs around the recorded ones: more are tried for each record, and one that fails is shrunk with Hypothesis.

``--msprobe-explore N`` asks for it in a check, and the setting ``msprobe_explore_time`` bounds it; tests draw inputs of
their own with ``precision.tensors`` and ``pytest_msprobe.tensors``. It needs hypothesis. It writes no file; with
``--msprobe-save-failures`` what it finds is saved like any other failure.

Take it out by deleting this folder and tests/extensions/explore; tests cannot draw inputs then.

Importing its modules loads hypothesis, msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.engine.replay.function_check import CheckedFunction, Given
    from pytest_msprobe.modes.check.features import CheckFeatures

#: The module of each name that ``pytest_msprobe`` has from here.
EXPORTS = {"tensors": "hypothesis_tensors"}
#: Commands of pages on a record that was checked.
NEXT_STEPS = (("Look for the smallest input that fails", ("<rerun>", "--msprobe-explore=50")),)


def pytest_msprobe_register_check_features(registry: CheckFeatures) -> None:
    """Add exploring to a check."""
    from pytest_msprobe.extensions.explore.options import ExploreFeature

    registry.add(ExploreFeature())


def pytest_msprobe_judge_function(
    config: pytest.Config, name: str, judge: Callable[[Given], CheckedFunction], given: Given
) -> CheckedFunction | None:
    """Judge a function on what strategies of Hypothesis draw; None where it is given none."""
    __tracebackhide__ = True
    if "hypothesis.strategies" not in sys.modules:
        # It is optional; a test that passes one of its strategies has imported it.
        return None
    from pytest_msprobe.extensions.explore.functions import is_drawn

    if not is_drawn(given):
        return None
    from pytest_msprobe.extensions.explore.functions import judge_drawn

    return judge_drawn(config, name, judge, given)
