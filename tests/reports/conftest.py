"""Journals to report on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.journal import Header
from pytest_msprobe.results.outcomes import Breakdown, SkipReason
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from tests.support import journals


@pytest.fixture(scope="session")
def judged() -> Callable[..., DirectionResult]:
    """Make the result of a record with one output."""
    return journals.make_judged


@pytest.fixture(scope="session")
def header() -> Header:
    """Return the header of the journals here."""
    return journals.HEADER


@pytest.fixture
def write_journal(tmp_path: Path) -> Callable[..., Path]:
    """Write a journal of these results and return its path."""

    def write(*results: DirectionResult, header: Header = journals.HEADER) -> Path:
        return journals.write_journal(tmp_path / "run.jsonl", *results, header=header)

    return write


@pytest.fixture
def journal(write_journal: Callable[..., Path]) -> Path:
    """Return a journal with one item of each outcome and two more failures."""
    return write_journal(
        journals.make_judged("Torch.add.0.forward", "pass", seconds=0.25),
        journals.make_judged("Torch.mul.0.forward", "fail", margin=3.0, reason="max_ulp_error is 6"),
        journals.make_judged("Torch.mul.0.backward", "fail", margin=70.0, reason="max_ulp_error is 140"),
        failed_without_result("Torch.bmm.0.forward", Breakdown.CRASH, "the process that ran it died"),
        journals.make_judged("Torch.exp.0.forward", "warn", margin=0.9, reason="worth a look"),
        journals.skipped("Torch.no_such_api.0.forward", SkipReason.UNKNOWN_API),
        journals.skipped("Torch.no_such_api.1.forward", SkipReason.UNKNOWN_API),
        journals.skipped("Distributed.all_reduce.0.forward", SkipReason.COLLECTIVE),
    )
