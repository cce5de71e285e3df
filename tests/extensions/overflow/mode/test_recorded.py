"""What four processes really record, searched."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.dump.communication.jsonl import find_steps
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from pytest_msprobe.extensions.overflow.nonfinite_origins import Phase, analyse
from tests.support.requirements import require

SCRIPT = Path(__file__).parents[4] / "examples" / "overflow" / "train.py"


@pytest.mark.slow
def test_the_planted_overflow_of_a_recorded_step_is_found(tmp_path: Path) -> None:
    require(torch.distributed.is_available(), "torch.distributed")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (step,) = find_steps(map(read_dump, find_dumps(tmp_path)))
    assert list(step.ranks) == [0, 1, 2, 3]
    analysis = analyse(step, load_rules())
    (culprit,) = analysis.culprits
    assert (culprit.rank, culprit.name, culprit.phase) == (2, "Torch.exp.0.forward", Phase.DURING)
    assert {(rank, name): source.rank for (rank, name), source in analysis.received.items()} == {
        (3, "Distributed.recv.0.forward"): 2,
        (0, "Distributed.broadcast.0.forward"): 3,
        (1, "Distributed.broadcast.0.forward"): 3,
    }


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.RAdam, torch.optim.Adafactor, torch.optim.Adadelta])
def test_a_healthy_step_of_an_optimizer_raises_no_warning(tmp_path, check, make):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    optimizer = make(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 8) * 0.01).square().mean().backward()
        optimizer.step()

    for _ in range(6):
        step()
    with record(tmp_path / "d"):
        step()
    checked = check(f"--msprobe-overflow={tmp_path / 'd'}")
    assert checked.exit_code == 0
    assert {case.properties["msprobe.overflow"] for case in checked.cases.values()} <= {"clean", "ignored"}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_memory_that_was_overwritten_between_two_calls_is_reported_as_such(tmp_path, check, task):
    given = torch.ones(64)
    memory = (ctypes.c_float * 64).from_address(given.data_ptr())
    with record(tmp_path / "d", task=task):
        torch.mul(given, 2)
        memory[3] = float("inf")
        torch.add(1, other=torch.add(given, 1))
    checked = check(f"--msprobe-overflow={tmp_path / 'd'}")
    checked.result.stdout.fnmatch_lines(
        [
            "first culprit: rank 0, Torch.add.0.forward, *",
            "  critical: inf or nan in an input that was overwritten outside of recorded calls*",
        ]
    )
    assert [checked.cases[f"Torch.add.{call}.forward"].properties["msprobe.overflow"] for call in (0, 1)] == [
        "critical",
        "high",
    ]


def test_a_call_that_writes_inf_over_its_own_input_is_the_one_where_it_arises(tmp_path, check):
    with record(tmp_path / "d"):
        given = torch.zeros(64)
        torch.mul(given, 2)
        given.log_()
    checked = check(f"--msprobe-overflow={tmp_path / 'd'}")
    assert checked.cases["Tensor.log_.0.forward"].properties["msprobe.overflow"] == "critical"
    assert "overwritten" not in checked.output
