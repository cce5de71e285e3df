"""Loading torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import SOFTMAX


@pytest.mark.parametrize(("version", "is_too_old"), [("2.2.2+cpu", True), ("1.13.1", True), ("2.3.0a0+abc", False)])
def test_a_torch_that_is_too_old_is_one_usage_error(
    pytester: pytest.Pytester, write_dump: Callable[..., Path], version: str, is_too_old: bool
) -> None:
    write_dump(SOFTMAX)
    pytester.makepyfile(torch=f"__version__ = {version!r}")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=sim")
    reported = f"ERROR: torch {version} is too old; install torch 2.3 or newer"
    assert (reported in result.errlines) is is_too_old
    assert not is_too_old or result.ret == pytest.ExitCode.USAGE_ERROR


def test_what_is_alive_at_the_end_is_not_searched_for_garbage() -> None:
    program = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000 + len(alive)))
from pytest_msprobe.engine.import_torch import import_torch
import_torch()
gc.unfreeze()
alive = [[] for _ in range(100_000)]
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"
