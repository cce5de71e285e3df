"""Journals of runs that never were."""

from __future__ import annotations

from pathlib import Path

from msprobe_standards.verdict import Verdict
from pytest_msprobe.journal import Entry, Header, JournalWriter, Start
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import SPREAD, DirectionResult, OutputResult

HEADER = Header(
    dumps={"/data/run/dump.json": "abc"},
    settings={"policy": "default", "device": "npu", "seed": "5"},
    root="/data",
    rerun=("pytest", "--msprobe-dump=<dump>::<record>", "--msprobe-device", "npu:0-7"),
)
START = Start("npu:3", "npu:3 Ascend 910B, torch 2.7.1", {"HF32 matmul": "off", "deterministic": "on"})


def entry(result: DirectionResult, dump: str = "run/dump.json") -> Entry:
    """Return the entry of an item that ended with this result."""
    return Entry(f"{dump}::{result.record}", result.outcome, result, "npu:3")


def make_judged(
    record: str, outcome: str, margin: float = 0.5, reason: str = "", seconds: float = 0.1
) -> DirectionResult:
    """Return the result of a record with one output."""
    verdict = Verdict(outcome, "ulp", reason, {"max_ulp_error": margin * 2}, {"max_ulp_error": 2.0}, margin)  # type: ignore[arg-type]
    output = OutputResult("output.0", verdict, "torch.float32", "torch.float64", (4, 8))
    return DirectionResult(record, verdict, (output,), seconds=seconds)


def with_spread(record: str, least: float, median: float, greatest: float, rank: int = 0) -> DirectionResult:
    """Return the result of a series that passed, with what its values were."""
    spread = {"rank": rank, "least": least, "median": median, "greatest": greatest}
    return make_judged(record, "pass", 0.0).with_extra(SPREAD, spread)


def skipped(record: str, reason: SkipReason) -> DirectionResult:
    """Return the result of a record that was not judged."""
    return DirectionResult(record, Verdict("skip", "", reason.value), skip=reason)


def write_journal(path: Path, *results: DirectionResult | Entry, header: Header = HEADER) -> Path:
    """Write a journal of these results, or of these entries, and return its path."""
    writer = JournalWriter(path, header)
    writer.write(START)
    for result in results:
        writer.write(result if isinstance(result, Entry) else entry(result))
    writer.close()
    return path
