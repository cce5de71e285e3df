"""A search with Hypothesis for the smallest input that fails, and its values made short, one by one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import hypothesis
import torch
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.errors import HypothesisException

from msprobe_standards import Verdict
from pytest_msprobe.engine.values.strides import lay_out
from pytest_msprobe.results.result import DirectionResult

_Input = TypeVar("_Input")

Tensors: TypeAlias = Mapping[str, torch.Tensor]

# More elements than this are not looked at one by one.
_MOST_ELEMENTS = 64


class WrongError(Exception):
    """An explored input fails."""


class TimeUpError(BaseException):
    """The time for exploring is over; no Exception, so that Hypothesis does not take it for a failure."""


def search(judge: Callable[[_Input], bool], inputs: st.SearchStrategy[_Input], key: int, examples: int) -> None:
    """Judge so many inputs, and where one fails ever smaller ones.

    ``judge`` returns False for what is no input, and raises WrongError for one that fails, which it is to keep; with
    TimeUpError it ends the search. The inputs depend on ``key``, and on what Hypothesis's own database holds of it.
    """
    database = hypothesis.settings.default.database  # type: ignore[union-attr]
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None if database is None else _DatabaseOfKey(database, key),
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )

    @hypothesis.seed(key)
    @settings
    @hypothesis.given(inputs)
    def attempt(drawn: _Input) -> None:
        hypothesis.assume(judge(drawn))

    # The smallest input has been kept; that none could be drawn shows in the number of judged ones.
    with contextlib.suppress(WrongError, TimeUpError, HypothesisException):
        attempt()


class _DatabaseOfKey(ExampleDatabase):
    """Hypothesis's own database with keys for one search: to Hypothesis all searches are one and the same test."""

    def __init__(self, database: ExampleDatabase, key: int) -> None:
        super().__init__()
        self._database = database
        self._prefix = key.to_bytes(8, "big")

    def save(self, key: bytes, value: bytes) -> None:
        self._database.save(self._prefix + key, value)

    def fetch(self, key: bytes) -> Any:
        return self._database.fetch(self._prefix + key)

    def delete(self, key: bytes, value: bytes) -> None:
        self._database.delete(self._prefix + key, value)


def kind_of_failure(result: DirectionResult) -> tuple[str, bool]:
    """Return what two failures must share to be shrunk into each other: what decided, and whether it is about NaN."""
    return result.decided_by, "nonfinite_mismatch" in result.verdict.metrics


def only_drifts(verdict: Verdict) -> bool:
    """Return whether only drift or direction is wrong: certain for independent errors only, not for repeated values."""
    broken = {name for name, limit in verdict.limits.items() if not verdict.metrics.get(name, limit) <= limit}
    return bool(broken) and broken <= {"gain_error", "shared_error"}


def shorten(tensors: Tensors, fails: Callable[[Tensors], bool]) -> Tensors:
    """Return tensors of the same shapes and dtypes with short values, and contiguous, as long as they fail."""
    for path, tensor in tensors.items():
        for simpler in _as_a_whole(tensor):
            if fails({**tensors, path: simpler}):
                tensors = {**tensors, path: simpler}
                break
        if tensor.numel() <= _MOST_ELEMENTS:
            tensors = {**tensors, path: _one_by_one(path, tensors, fails)}
    return tensors


def _as_a_whole(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.zeros_like(tensor, memory_format=torch.contiguous_format)
    if tensor.dtype is not torch.bool:
        yield torch.ones(tensor.shape).to(tensor.dtype)
    if not tensor.is_contiguous():
        yield tensor.clone(memory_format=torch.contiguous_format)


def _one_by_one(path: str, tensors: Tensors, fails: Callable[[Tensors], bool]) -> torch.Tensor:
    tensor = tensors[path]
    for place in range(tensor.numel()):
        for simpler in _simpler(tensor.reshape(-1)[place].item()):
            changed = _with_value(tensor, place, simpler)
            if fails({**tensors, path: changed}):
                tensor = changed
                break
        tensors = {**tensors, path: tensor}
    return tensor


def _simpler(value: Any) -> Iterator[Any]:
    """Yield values with fewer digits, the simplest first."""
    candidates: list[Any] = [0, 1]
    if isinstance(value, float) and math.isfinite(value):
        candidates += [float(round(value)), *(float(f"{value:.{digits}g}") for digits in (1, 2, 3))]
    for candidate in candidates:
        if candidate == value:
            return
        yield candidate


def _with_value(tensor: torch.Tensor, place: int, value: Any) -> torch.Tensor:
    values = tensor.clone(memory_format=torch.contiguous_format)
    values.view(-1)[place] = value
    return values if tensor.is_contiguous() else lay_out(values, tensor.stride())
