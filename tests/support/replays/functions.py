"""Functions of tests, checked in each direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msprobe_standards import Standard
from pytest_msprobe.engine.replay.function_check import FunctionCheck
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.result import DirectionResult


def check_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    name: str,
    setup: ReplayConfig,
    golden: Callable[..., Any] | None = None,
    backward: bool = False,
    standard: Standard | None = None,
) -> list[DirectionResult]:
    """Check a function, or an ``nn.Module``, in both directions where ``backward`` asks for it; see `FunctionCheck`."""
    check = FunctionCheck(
        function, args, kwargs, name=name, setup=setup, golden=golden, backward=backward, standard=standard
    )
    return [check.judge(direction) for direction in check.directions]
