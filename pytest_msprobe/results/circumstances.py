"""The inputs and the call stack of a failing record, as extras of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_INPUTS, _CALLED_AT = "inputs", "called_at"


class InputStatistics(msgspec.Struct, frozen=True):
    """One tensor that a record computed with: least, greatest, mean and root mean square of its finite elements.

    They are NaN where there is none, ``not_finite`` counts the others.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    greatest: float
    mean: float
    rms: float
    not_finite: int = 0


def with_inputs(result: DirectionResult, inputs: Sequence[InputStatistics]) -> DirectionResult:
    """Return a result with its inputs."""
    return result.with_extra(_INPUTS, msgspec.to_builtins(list(inputs)))


def inputs_of(extras: Mapping[str, Any]) -> list[InputStatistics]:
    """Return what the extras of a result say of inputs."""
    return decode_extra(extras, _INPUTS, list[InputStatistics]) or []


def with_called_at(result: DirectionResult, frames: Sequence[str]) -> DirectionResult:
    """Return a result with its call stack, innermost frame first."""
    return result.with_extra(_CALLED_AT, list(frames))


def called_at(extras: Mapping[str, Any]) -> list[str]:
    """Return the call stack that the extras of a result hold."""
    return decode_extra(extras, _CALLED_AT, list[str]) or []
