"""Misuses of the public names: type checkers refuse each line that says so, and no other."""

from __future__ import annotations

import torch

import msprobe_hooks
import pytest_msprobe
from msprobe_hooks import (
    PrecisionDebugger,
    record,
    watch,
)
from pytest_msprobe import (
    Precision,
    TestDump,
    TestLive,
    TrainingMonitor,
    check_dump,
    compare_dumps,
    live,
)

msprobe_hooks.recrd("run")  # refused
pytest_msprobe.check("run")  # refused
record("run", levl="L1")  # refused
record("run", level="L9")  # refused
record("run", task="statistic")  # refused
record("run", quiet="yes")  # refused
record("run", step="0")  # refused
watch(torch.nn.Linear(2, 2), evry=10)  # refused
watch(torch.nn.Linear(2, 2), format="xml")  # refused
watch(torch.nn.Linear(2, 2), log_to="wandbb")  # refused
watch(torch.nn.Linear(2, 2), log_to=3)  # refused
live(on_failure="raise")  # refused
live(shar=0.1)  # refused
check_dump("run", devise="cpu")  # refused
compare_dumps("target")  # refused
PrecisionDebugger(dump_pth="run")  # refused


def test_own_kernel(precision: Precision, msprobe_dump: TestDump) -> None:
    precision.chek(torch.softmax, torch.ones(2))  # refused
    precision.check(torch.softmax, torch.ones(2), backward="yes")  # refused
    msprobe_dump.chek()  # refused


def test_training(msprobe_live: TestLive, msprobe_monitor: TrainingMonitor) -> None:
    msprobe_live(repeet=True)  # refused
    msprobe_monitor(torch.nn.Linear(2, 2), polcy="default")  # refused
