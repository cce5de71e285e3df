"""Where the batch of a recorded call lies: in the role of an argument, whatever its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.determinism import row_cut
from pytest_msprobe.engine.replay.trials.trial import Trial

ROWS, FEATURES, INNER = 12, 6, 8


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def rows_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return dimension, length and cut arguments of a call's batch, or why it has none."""
    name = function.__name__
    found = row_cut(Trial(Subject(name, name, function, function, Arguments(args, kwargs, frozenset())), CpuDevice()))
    return found if isinstance(found, str) else (found.dim, found.length, dict(found.inputs))


@pytest.mark.parametrize(
    ("call", "inputs"),
    [
        (lambda: rows_of(torch.addmm, x(FEATURES), x(ROWS, INNER), x(INNER, FEATURES)), {"args.1": 0}),
        (lambda: rows_of(torch.addmm, x(1, FEATURES), x(ROWS, INNER), x(INNER, FEATURES)), {"args.1": 0}),
        (
            lambda: rows_of(torch.addmm, x(ROWS, FEATURES), x(ROWS, INNER), x(INNER, FEATURES)),
            {"args.0": 0, "args.1": 0},
        ),
        (
            lambda: rows_of(torch.baddbmm, x(FEATURES), x(ROWS, 3, INNER), x(ROWS, INNER, FEATURES)),
            {"args.1": 0, "args.2": 0},
        ),
        (lambda: rows_of(F.linear, weight=x(FEATURES, INNER), input=x(ROWS, INNER)), {"kwargs.input": 0}),
        (lambda: rows_of(torch.einsum, "oi,bi->bo", x(FEATURES, INNER), x(ROWS, INNER)), {"args.2": 0}),
        (lambda: rows_of(torch.add, x(FEATURES), x(ROWS, FEATURES)), {"args.1": 0}),
        (lambda: rows_of(torch.mul, torch.tensor(2.0), x(ROWS, FEATURES)), {"args.1": 0}),
        (
            lambda: rows_of(torch.where, torch.ones(FEATURES, dtype=torch.bool), x(ROWS, FEATURES), x(ROWS, 1)),
            {"args.1": 0, "args.2": 0},
        ),
    ],
)
def test_an_operand_that_all_rows_share_is_not_the_batch(call: Callable[[], Any], inputs: dict[str, int]) -> None:
    assert call() == (0, ROWS, inputs)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rows_of(torch.addmm, x(FEATURES), x(1, INNER), x(INNER, FEATURES)),
        lambda: rows_of(F.linear, x(1, INNER), x(FEATURES, INNER)),
        lambda: rows_of(torch.einsum, "bi,oi->bo", x(1, INNER), x(FEATURES, INNER)),
    ],
)
def test_features_are_no_rows_of_a_batch_that_has_one(call: Callable[[], Any]) -> None:
    assert call() == "its batch has one row"


@pytest.mark.parametrize(
    "call",
    [
        lambda: rows_of(F.batch_norm, x(ROWS, FEATURES), None, None, None, None, True),
        lambda: rows_of(F.embedding, torch.arange(ROWS), x(ROWS, FEATURES)),
        lambda: rows_of(torch.addmv, x(FEATURES), x(FEATURES, INNER), x(INNER)),
        lambda: rows_of(torch.addbmm, x(FEATURES), x(ROWS, 3, INNER), x(ROWS, INNER, FEATURES)),
    ],
)
def test_a_call_without_a_rule_for_rows_is_left_out(call: Callable[[], Any]) -> None:
    assert call() == "its rows depend on each other, or no rule says how to cut it"
