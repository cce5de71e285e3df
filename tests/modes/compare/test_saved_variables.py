"""Variables that a program saved by name, compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps.dump_files import write_dump

Compare = Callable[..., pytest.RunResult]

SAVED = {"task": "statistics", "level": "debug"}


@pytest.fixture
def saved(tmp_path: Path, tensor: Any) -> tuple[Path, Path]:
    """Write two recordings of saved variables, as msprobe 26 does, and return their folders; one tensor differs."""
    for side, greatest in (("target", 2.0), ("golden", 1.0)):
        variables = {"loss.0.debug": tensor(4), "state.0.debug": {"h": [tensor(4), tensor(4, Max=greatest)]}}
        path = write_dump(tmp_path / side / "step0" / "rank0", variables, **SAVED)
        path.rename(path.with_name("debug.json"))
    return tmp_path / "target", tmp_path / "golden"


def test_variables_that_were_saved_by_name_are_compared(
    compare: Compare, saved: tuple[Path, Path], tmp_path: Path
) -> None:
    result = compare(*saved, f"--msprobe-csv={tmp_path}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["first saved value that differs: state.0.debug (debug.h.1: *"])
    (table,) = tmp_path.glob("*.csv")
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    assert names == ["loss.0.debug", "state.0.debug.h.0", "state.0.debug.h.1"]


def test_saved_variables_are_no_calls_to_check(pytester: pytest.Pytester, saved: tuple[Path, Path]) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-dump={saved[0]}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *debug.json: level debug: saved variables, no calls to check; *"])
