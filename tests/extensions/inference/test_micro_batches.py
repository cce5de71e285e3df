"""One step in other micro-batches: found by its shapes, and compared row by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from msprobe_hooks import record

Compare = Callable[..., pytest.RunResult]


def _tokens() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 16), nn.Tanh()), torch.randint(0, 50, (8, 12))


def _vectors() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5)), torch.randn(8, 16)


def _normalised() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)), torch.randn(8, 16)


def _train(
    folder: Path,
    size: int,
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    *,
    task: str = "tensor",
    steps: bool = False,
) -> Path:
    """Record one training step in micro-batches of a size, each as a step of its own where ``steps`` says so."""
    torch.manual_seed(0)
    model, batch = make()
    with record(folder, level="mix", task=task, model=model) as session:
        for part in batch.split(size):
            model(part).square().sum().backward()
            if steps:
                session.step()
    return folder


@pytest.mark.parametrize(
    ("make", "counts"), [(_tokens, "96 tokens of 8 requests in both runs"), (_vectors, "8 tokens of 8 requests *")]
)
def test_a_step_in_other_micro_batches_is_compared_by_rows(
    compare: Compare, tmp_path: Path, make: Callable[[], tuple[nn.Module, torch.Tensor]], counts: str
) -> None:
    result = compare(_train(tmp_path / "whole", 8, make), _train(tmp_path / "parts", 2, make))
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["msprobe: comparing * token by token, as one step in other micro-batches (--msprobe-match inference)", counts]
    )


def test_a_layer_that_depends_on_the_batch_is_named(compare: Compare, tmp_path: Path) -> None:
    result = compare(_train(tmp_path / "whole", 8, _normalised), _train(tmp_path / "parts", 2, _normalised))
    result.stdout.fnmatch_lines(["first module that differs: 1 (*"])


def test_micro_batches_may_be_steps_and_of_other_sizes(compare: Compare, tmp_path: Path) -> None:
    result = compare(_train(tmp_path / "threes", 3, _vectors, steps=True), _train(tmp_path / "whole", 8, _vectors))
    result.assert_outcomes(passed=3)


def test_calls_are_compared_where_the_user_says_so_and_the_summary_leads_to_rows(
    compare: Compare, tmp_path: Path
) -> None:
    runs = _train(tmp_path / "whole", 8, _vectors), _train(tmp_path / "parts", 2, _vectors)
    sentence = (
        "the runs cut one batch otherwise: module 0 was called 1 time with [[]8, 16[]], in the golden run 4 times with "
        "[[]2, 16[]]; record both with task tensor and compare token by token, with --msprobe-match inference"
    )
    result = compare(*runs, "--msprobe-match", "calls")
    result.stdout.fnmatch_lines([sentence])
    result.stdout.no_fnmatch_line("*msprobe_fuzzy*")
    result.stdout.no_fnmatch_line("first * culprit*")


def test_statistics_have_no_rows_and_lead_to_a_recording_that_has(compare: Compare, tmp_path: Path) -> None:
    runs = (_train(tmp_path / name, size, _vectors, task="statistics") for name, size in (("whole", 8), ("parts", 2)))
    compare(*runs).stdout.fnmatch_lines(["the runs cut one batch otherwise: *; record both with task tensor and *"])


@pytest.mark.parametrize("steps", [True, False])
def test_more_of_the_same_batches_are_no_micro_batches(compare: Compare, tmp_path: Path, steps: bool) -> None:
    def more() -> tuple[nn.Module, torch.Tensor]:
        model, batch = _vectors()
        return model, batch.repeat(2, 1)

    result = compare(
        _train(tmp_path / "twice", 8, more, steps=steps), _train(tmp_path / "once", 8, _vectors, steps=steps)
    )
    result.stdout.no_fnmatch_line("*micro-batches*")
    result.stdout.no_fnmatch_line("*cut one batch otherwise*")
