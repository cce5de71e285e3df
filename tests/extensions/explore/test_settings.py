"""Settings of explored inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="this pytest reads no settings in TOML's own types")
def test_numbers_of_pyproject_are_numbers(
    pytester: pytest.Pytester, write_dump: Callable[..., Path], records: dict[str, Any]
) -> None:
    write_dump(records)
    pytester.makepyprojecttoml("[tool.pytest]\nmsprobe_explore_time = 2")
    words = ("--collect-only", "--msprobe-dump=dump.json", "--msprobe-explore=3")
    assert pytester.runpytest_inprocess(*words).ret == 0
    pytester.makepyprojecttoml("[tool.pytest]\nmsprobe_explore_time = -2")
    result = pytester.runpytest_inprocess(*words)
    expected = "msprobe_explore_time '-2': expected a positive number of seconds"
    assert [line for line in result.errlines if line] == [f"ERROR: {expected}"]
