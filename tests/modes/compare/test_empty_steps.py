"""Steps in which nothing was recorded, as the one that a loop ending in ``step`` begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps.compared import Runs

Compare = Callable[..., pytest.RunResult]


def steps(folder: Path, call: Any, tensor: Any, *counts: int) -> Path:
    """Write a run whose steps have so many records."""
    for step, count in enumerate(counts):
        records = {f"Torch.exp.{i}.forward": call(tensor(4)) for i in range(count)}
        Runs(folder).write(f"step{step}/rank", records)
    return folder


@pytest.mark.parametrize("theirs", [(1, 1, 0), (1, 1)])
def test_an_empty_last_step_is_a_line(
    compare: Compare, tmp_path: Path, call: Any, tensor: Any, theirs: tuple[int, ...]
) -> None:
    target = steps(tmp_path / "target", call, tensor, 1, 1, 0)
    result = compare(target, steps(tmp_path / "golden", call, tensor, *theirs))
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["msprobe: 1 dump without records, not compared: *step2*dump.json"])


def test_an_empty_step_where_the_golden_run_has_calls_is_an_error(
    compare: Compare, tmp_path: Path, call: Any, tensor: Any
) -> None:
    target = steps(tmp_path / "target", call, tensor, 1, 0)
    result = compare(target, steps(tmp_path / "golden", call, tensor, 1, 2))
    result.stderr.fnmatch_lines(["*step1*holds no records, and *step1*holds 2*"])
