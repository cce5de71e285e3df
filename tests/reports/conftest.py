"""Journals to report on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.journal.file import Entry, Header, JournalWriter, Start
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, broken
from pytest_msprobe.results.skips import SkipReason

HEADER = Header(
    dumps={"/data/run/dump.json": "abc"},
    settings={"policy": "default", "device": "npu", "seed": "5"},
    root="/data",
    rerun=("pytest", "--msprobe-dump=<dump>::<record>", "--msprobe-device", "npu:0-7"),
)
START = Start("npu:3", "npu:3 Ascend 910B, torch 2.7.1", {"HF32 matmul": "off", "deterministic": "on"})


def entry(result: DirectionResult, dump: str = "run/dump.json") -> Entry:
    return Entry(f"{dump}::{result.record}", result.outcome, result, "npu:3")


def make_judged(
    record: str, outcome: str, margin: float = 0.5, reason: str = "", seconds: float = 0.1
) -> DirectionResult:
    verdict = Verdict(outcome, "ulp", reason, {"max_ulp_error": margin * 2}, {"max_ulp_error": 2.0}, margin)  # type: ignore[arg-type]
    output = OutputResult("output.0", verdict, "torch.float32", "torch.float64", (4, 8))
    return DirectionResult(record, verdict, (output,), seconds=seconds)


def skipped(record: str, reason: SkipReason) -> DirectionResult:
    return DirectionResult(record, Verdict("skip", "", reason.value), skip=reason)


@pytest.fixture(scope="session")
def judged() -> Callable[..., DirectionResult]:
    """Make the result of a record with one output."""
    return make_judged


@pytest.fixture(scope="session")
def header() -> Header:
    """Return the header of the journals here."""
    return HEADER


@pytest.fixture
def write_journal(tmp_path: Path) -> Callable[..., Path]:
    """Write a journal of these results and return its path."""

    def write(*results: DirectionResult, header: Header = HEADER) -> Path:
        path = tmp_path / "run.jsonl"
        writer = JournalWriter(path, header)
        writer.write(START)
        for result in results:
            writer.write(entry(result))
        writer.close()
        return path

    return write


@pytest.fixture
def journal(write_journal: Callable[..., Path]) -> Path:
    """Return a journal with one item of each outcome and two more failures."""
    return write_journal(
        make_judged("Torch.add.0.forward", "pass", seconds=0.25),
        make_judged("Torch.mul.0.forward", "fail", margin=3.0, reason="max_ulp_error is 6"),
        make_judged("Torch.mul.0.backward", "fail", margin=70.0, reason="max_ulp_error is 140"),
        broken("Torch.bmm.0.forward", Breakdown.CRASH, "the process that ran it died"),
        make_judged("Torch.exp.0.forward", "warn", margin=0.9, reason="worth a look"),
        skipped("Torch.no_such_api.0.forward", SkipReason.UNKNOWN_API),
        skipped("Torch.no_such_api.1.forward", SkipReason.UNKNOWN_API),
        skipped("Distributed.all_reduce.0.forward", SkipReason.COLLECTIVE),
    )
