"""Uses of the public names, which type checkers accept."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

import pytest_msprobe
from msprobe_hooks import PrecisionDebugger, RecordingError, feed, record, replay_step, watch, write_weights
from pytest_msprobe import (
    CheckedRecord,
    Precision,
    Results,
    TestDump,
    TestLive,
    TrainingMonitor,
    check_dump,
    compare_dumps,
    live,
    precision_standard,
    table,
)
from pytest_msprobe.devices.cpu import CpuDevice


def record_steps(model: torch.nn.Module) -> str:
    with record("run", "mix", model=model, task="tensor", step=[0, "3-5"], list=["linear"], quiet=True) as session:
        session.step()
    return str(session.summary)


def check(folder: Path) -> list[str]:
    results: list[CheckedRecord] = list(check_dump(folder, device="cpu"))
    return [result.name for result in results if result.outcome == "fail"]


def compare() -> list[str]:
    return [result.outcome for result in compare_dumps("target", "golden", policy="default", fuzzy=True)]


def show(folder: Path) -> list[str]:
    results: Results[CheckedRecord] = table(check_dump(folder, device=CpuDevice()))
    frame = table(each for each in compare_dumps("target", "golden") if each.call is not None).to_pandas()
    frame.to_csv("differences.csv")
    return [result.name for result in results]


def watch_training(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with watch(model, optimizer, "series", every=10, format="parquet", statistics=["norm"], log_to=["wandb", "mlflow"]):
        optimizer.step()
    with SummaryWriter("events") as writer, watch(model, optimizer, log_to=writer):
        optimizer.step()
    with live(apis=["linear"], share=0.1, on_failure="stop") as checks, feed("golden", ["layers.3"]):
        model(torch.ones(1))
    print(checks.counts["fail"])
    replayed = replay_step(model, share=0.01)
    replayed(lambda: model(torch.ones(1)).sum().backward())


def sync(model: torch.nn.Module) -> None:
    try:
        write_weights(model, "weights")
    except RecordingError as error:
        print(error)
    PrecisionDebugger(dump_path="run", level="L1").start()


@precision_standard("ulp", max_ulp=2)
def test_own_kernel(precision: Precision) -> None:
    precision.check(torch.softmax, pytest_msprobe.tensors(torch.float32, (3, 4)), -1, backward=True)


def test_training(msprobe_dump: TestDump, msprobe_live: TestLive, msprobe_monitor: TrainingMonitor) -> None:
    model = torch.nn.Linear(2, 2)
    with msprobe_live(repeat=True), msprobe_monitor(model, policy="default", every=2):
        model(torch.ones(1, 2))
    print([result.verdict.outcome for result in msprobe_dump.check()])
