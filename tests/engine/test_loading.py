"""Loading torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps import SOFTMAX


@pytest.mark.parametrize(("version", "is_too_old"), [("2.2.2+cpu", True), ("1.13.1", True), ("2.3.0a0+abc", False)])
def test_a_torch_that_is_too_old_is_one_usage_error(
    pytester: pytest.Pytester, write_dump: Callable[..., Path], version: str, is_too_old: bool
) -> None:
    write_dump(SOFTMAX)
    pytester.makepyfile(torch=f"__version__ = {version!r}")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=sim")
    told = f"ERROR: torch {version} is too old; install torch 2.3 or newer"
    assert (told in result.errlines) is is_too_old
    assert not is_too_old or result.ret == pytest.ExitCode.USAGE_ERROR
