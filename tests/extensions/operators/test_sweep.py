"""Torch's own operators on a healthy CPU: no alarm, no crash, and at most one record in a hundred without a verdict."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from msprobe_hooks.dump.recording_paths import find_dumps
from pytest_msprobe import check_dump
from pytest_msprobe.extensions.operators.database import find_operators
from pytest_msprobe.extensions.operators.sweep import TASKS, Sweep, read_sweep

PROGRAM = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"
DTYPES = ("float32", "bfloat16", "float16", "float64", "complex64", "int64", "bool")
#: The names of about a tenth of the operators begin so, of each kind some.
TENTH = ("a[c-t]*", "linalg.l*", "nn.functional.[b-c]*", "cum*", "scatter*", "special.e*", "masked.m*")


def swept(folder: Path, dtype: str, task: str, *words: str) -> tuple[Counter[str], list[str], Sweep]:
    """Record operators and check them; return how they ended, the skips and alarms in words, and what was recorded."""
    command = ["operators", "--dtype", dtype, "--task", task, "-o", str(folder), *words]
    # In a process of its own: torch's database sets switches of torch.
    subprocess.run([sys.executable, "-c", PROGRAM, *command], check=True, capture_output=True)
    (dump,) = find_dumps(folder)
    checked = list(check_dump(dump, device="cpu"))
    sweep = read_sweep(dump)
    assert sweep is not None
    remarks = [f"{one.outcome} {one.name}: {one.result.reason}" for one in checked if one.outcome != "pass"]
    return Counter(one.outcome for one in checked), remarks, sweep


@pytest.mark.slow
def test_a_tenth_of_the_operators_has_no_alarm_and_few_skips(tmp_path: Path) -> None:
    patterns = [word for pattern in TENTH for word in ("--op", pattern)]
    outcomes, remarks, sweep = swept(tmp_path, "bfloat16", "tensor", "--samples", "2", *patterns)
    assert [remark for remark in remarks if not remark.startswith("skip")] == []
    assert outcomes["skip"] <= 0.01 * outcomes.total(), remarks
    assert len(sweep.operators) >= 50


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_operator_has_an_alarm_in_any_dtype_and_task(tmp_path: Path, dtype: str, task: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcomes, remarks, _ = swept(tmp_path, dtype, task)
    finally:
        torch.set_num_threads(threads)
    assert [remark for remark in remarks if not remark.startswith("skip")] == []
    assert outcomes["skip"] <= 0.01 * outcomes.total(), remarks


def test_the_database_leaves_the_switches_of_torch_to_the_process_that_imports_it() -> None:
    (_,) = find_operators(("addbmm",), ())
    assert not torch.backends.flags_frozen()
