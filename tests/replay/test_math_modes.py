from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytest_msprobe.devices.math_modes import math_modes
from pytest_msprobe.replay.arguments import Arguments
from pytest_msprobe.replay.golden import baseline_side, golden_side
from pytest_msprobe.replay.side import Side, run_forward


@pytest.fixture
def _reduced_precision() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def precision_inside(side: Side, arguments: Arguments) -> str:
    seen: list[str] = []
    run_forward(
        lambda x: seen.append(torch.get_float32_matmul_precision()),
        arguments,
        side,
        operation="matmul",
        record="Torch.matmul.0.forward",
        differentiate=False,
    )
    return seen[0]


@pytest.mark.usefixtures("_reduced_precision")
def test_golden_runs_without_reduced_precision_and_leaves_the_mode_as_it_was() -> None:
    arguments = Arguments((torch.ones(2),), {}, frozenset())
    assert precision_inside(golden_side("matmul", arguments), arguments) == "highest"
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.usefixtures("_reduced_precision")
def test_the_baseline_computes_as_the_process_is_set() -> None:
    arguments = Arguments((torch.ones(2),), {}, frozenset())
    assert precision_inside(baseline_side(None), arguments) == "medium"


@pytest.mark.usefixtures("_reduced_precision")
def test_modes_are_told_in_words() -> None:
    assert math_modes()["float32 matmul precision"] == "medium"
