"""Dumps of a framework that is not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("framework", "remedy"),
    [
        ("mindspore", "MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'"),
        ("mindtorch", "MindTorch is not installed: neither a package mindtorch"),
    ],
)
def test_a_dump_of_a_framework_that_is_not_installed_names_it(
    pytester: pytest.Pytester, write_dump: Callable[..., Path], records: dict[str, Any], framework: str, remedy: str
) -> None:
    if find_spec(framework) is not None:
        pytest.skip(f"{framework} is installed")
    write_dump(records, framework=framework)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in result.errlines if line)
    assert f"recorded with {framework}, but {remedy}" in line
