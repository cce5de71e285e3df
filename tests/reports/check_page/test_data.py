"""What the page of a check is given, and how much of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.commands.main import main
from pytest_msprobe.reports.check_page.rows import CheckedRecord, Details, Rows, deciding_metric
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult
from tests.support.browser.pages import page_data, words_of
from tests.support.journals import make_judged, skipped, write_journal


def test_a_row_describes_a_record_by_words_that_are_written_once() -> None:
    rows = Rows()
    little = make_judged("Torch.add.0.forward", "pass").with_extra(LITTLE_JUDGED, "constant")
    results = [
        little,
        make_judged("Functional.softmax.3.backward", "fail", 7.0),
        skipped("Torch.add.1.forward", SkipReason.NO_GRADIENT),
        make_judged("step", "fail", math.inf),
    ]
    for result in results:
        rows.add(CheckedRecord(0, result, "rank0", "npu:1", ("pytest", "<dump>::<record>"), f"d::{result.record}"))
    data = rows.plain()

    assert data["columns"]["name"] == [result.record for result in results]
    assert words_of(data, "api") == ["Torch.add", "Functional.softmax", "Torch.add", "step"]
    assert words_of(data, "direction") == ["forward", "backward", "forward", ""]
    reasons = ["constant", results[1].reason, SkipReason.NO_GRADIENT.value, results[3].reason]
    assert words_of(data, "reason") == reasons
    assert all(reasons)
    assert words_of(data, "dtype") == ["float32", "float32", "", "float32"]
    assert data["columns"]["margin"] == [0.5, 7.0, 0.0, "inf"]
    assert data["words"]["chosen"] == ["d::"]
    assert sorted(data["details"]) == ["1", "3"]


def test_the_metric_that_decides_is_the_one_that_uses_up_most_of_its_limit() -> None:
    verdict = Verdict(
        "fail", "benchmark", "", {"rms": 4.0, "greatest": 9.0, "seen": 99.0}, {"rms": 2.0, "greatest": 9.0}
    )

    assert deciding_metric(DirectionResult("a", verdict)) == "rms"
    assert deciding_metric(DirectionResult("a", Verdict("pass", "equal"))) == ""


def test_details_of_the_records_that_fail_worst_are_kept_within_the_bytes_of_a_page() -> None:
    details = Details(most_bytes=3000)
    for row, margin in enumerate([5.0, 2.0, math.inf, 9.0, 3.0]):
        details.add(row, make_judged(f"Torch.add.{row}.forward", "fail", margin, reason="x" * 400))

    assert list(details.by_row()) == [2, 3]
    assert details.dropped == 3


def test_the_command_writes_a_page_of_several_journals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_journal(tmp_path / f"{place}.jsonl", make_judged("Torch.add.0.forward", outcome, margin))
        for place, (outcome, margin) in enumerate([("pass", 0.5), ("fail", 3.0)])
    ]

    assert main(["report", *map(str, runs), "--html", str(tmp_path / "page.html")]) == 0

    assert capsys.readouterr().out == ""
    data = page_data(tmp_path / "page.html")
    assert data["columns"]["run"] == [0, 1]
    assert [run["name"] for run in data["runs"]] == [str(path) for path in runs]
    assert data["runs"][0]["modes"] == ["HF32 matmul off, deterministic on"]
    assert words_of(data, "rerun") == [["pytest", "--msprobe-dump=<dump>::<record>", "--msprobe-device", "npu:3"]] * 2
    assert words_of(data, "chosen") == ["/data/run/dump.json::"] * 2


def test_the_head_of_a_page_says_nothing_special_of_a_check_of_a_dump(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "run.jsonl", make_judged("Torch.add.0.forward", "pass"))
    assert main(["report", str(journal), "--html", str(tmp_path / "page.html")]) == 0

    (run,) = page_data(tmp_path / "page.html")["runs"]
    assert (run["notes"], run["rerunTitle"]) == ([], "Run this record alone")
