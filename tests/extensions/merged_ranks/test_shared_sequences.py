"""Ranks that share sequences and experts, by gloo: a right run equals that of one process, a wrong one is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks

Compare = Callable[..., pytest.RunResult]
Trained = Callable[..., Path]
_LAYOUT = "--msprobe-target-layout"
_REPOSITORY = str(Path(__file__).parents[3])
_PROGRAM = """
import sys
from tests.support.dumps.sequence_parallel import train
train(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), {cases!r})
"""
_PLANS = ["zigzag", "contiguous", "ulysses", "zigzag+mean", "zigzag+experts", "experts+mean"]
_FAULTS = [
    ("zigzag", "loss"),
    ("zigzag", "attention"),
    ("zigzag", "order"),
    ("zigzag+experts", "expert"),
    ("zigzag+experts", "router"),
    ("zigzag+mean", "loss"),
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Record the training of the small mixture of experts by one, two and four processes."""
    folder = tmp_path_factory.mktemp("runs")
    for count, cases in (
        (1, [("", "")]),
        (2, [*((plan, "") for plan in _PLANS), *_FAULTS]),
        (4, [("zigzag+mean", "")]),
    ):
        program = _PROGRAM.format(cases=cases)
        assert run_ranks(program, count, folder, PYTHONPATH=_REPOSITORY) == [(0, "")] * count
    return lambda plan="", fault="", count=2: folder / f"{count}-{plan}-{fault}" / "step0"


@pytest.mark.parametrize(
    ("plan", "count", "layout", "equal"),
    [
        ("zigzag", 2, "cp=2", 158),
        ("contiguous", 2, "cp=2", 158),
        ("ulysses", 2, "cp=2", 159),
        ("zigzag+mean", 4, "cp=4", 158),
        ("zigzag+experts", 2, "cp=2,ep=2", 133),
        ("experts+mean", 2, "ep=2", 134),
    ],
)
def test_a_right_run_has_no_wrong_call(
    compare: Compare, trained: Trained, plan: str, count: int, layout: str, equal: int
) -> None:
    result = compare(trained(plan, count=count), trained(count=1), _LAYOUT, layout)
    assert result.parseoutcomes().get("failed", 0) == 0
    assert result.parseoutcomes()["passed"] >= equal
    result.stdout.fnmatch_lines(["no compared call differs*"])


@pytest.mark.parametrize(
    ("plan", "fault", "layout", "found"),
    [
        ("zigzag", "loss", "cp=2", "first backward culprit: Functional.cross_entropy.0.backward (output.0: *"),
        ("zigzag", "attention", "cp=2", "first backward culprit: Module.attention.core.Core.backward.0 (output.1: *"),
        ("zigzag", "order", "cp=2", "first forward culprit: Functional.softmax.0.forward *"),
        ("zigzag+experts", "expert", "cp=2,ep=2", "first forward culprit: weights mixture.experts.2.up.weight *"),
        (
            "zigzag+experts",
            "router",
            "cp=2,ep=2",
            "gradients of which ranks hold parts, and which no recorded call reduces; *: Module.mixture.router.*",
        ),
        ("zigzag+mean", "loss", "cp=2", "first backward culprit: Tensor.__truediv__.1.backward (output.0: *"),
    ],
)
def test_a_planted_fault_is_named(
    compare: Compare, trained: Trained, plan: str, fault: str, layout: str, found: str
) -> None:
    compare(trained(plan, fault), trained(count=1), _LAYOUT, layout).stdout.fnmatch_lines([found])


def test_gradients_that_ranks_average_are_said_to_be_a_multiple_unless_the_layout_forbids_it(
    compare: Compare, trained: Trained
) -> None:
    runs = trained("zigzag+mean"), trained(count=1)
    note = "gradients are a multiple of the golden run's, *: Functional.cross_entropy.0.backward by 2"
    compare(*runs, _LAYOUT, "cp=2").stdout.fnmatch_lines([note])
    result = compare(*runs, _LAYOUT, "cp=2,gradients=mean")
    assert result.parseoutcomes().get("failed", 0) == 0
    result.stdout.no_fnmatch_line(note)
    compare(*runs, _LAYOUT, "cp=2,gradients=sum").stdout.fnmatch_lines(
        ["first backward culprit: Functional.cross_entropy.0.backward *"]
    )


def test_ranks_that_share_no_sequence_are_one_error(compare: Compare, trained: Trained) -> None:
    for layout, problem in (
        ("cp=2", "*cp=2 and pp=1 make 2 ranks of one model, which do not divide the 1 recorded ranks; *"),
        ("cp=3,ep=2", "*cp=3 and ep=2 do not fit: *"),
    ):
        result = compare(trained(count=1), trained(count=1), _LAYOUT, layout)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([problem])
