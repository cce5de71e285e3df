"""What MindSpore's calls overwrite is no reason for two runs to differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import ops

from msprobe_hooks import record
from tests.support.runs import run_pytest


def recorded(folder: Path, rubbish: float, task: str) -> Path:
    x = ms.Tensor(np.arange(6, dtype=np.float32))

    def memory() -> Any:
        return ms.Tensor(np.full(6, rubbish, dtype=np.float32))

    with record(folder, framework="mindspore", task=task):
        copied = memory()
        copied.copy_(x)
        ops.add(copied, x.expand_as(memory()))
    return folder


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_recordings_with_other_rubbish_are_equal(pytester: pytest.Pytester, tmp_path: Path, task: str) -> None:
    target, golden = (recorded(tmp_path / str(rubbish), rubbish, task) for rubbish in (7.0, -3.0))
    result = run_pytest(pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["no compared call differs*", "1 value not compared (the call does not read what this memory held): *"]
    )
