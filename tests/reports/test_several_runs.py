"""Reports of several journals at once."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.results.outcomes import SkipReason
from tests.support.journals import HEADER, make_judged, skipped, write_journal

MUL, ADD = "Torch.mul.0.forward", "Torch.add.0.forward"


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def two_seeds(tmp_path: Path) -> list[Path]:
    """Return journals of two runs, of which the second has a failure that the first has not."""
    first, second = (
        msgspec.structs.replace(
            HEADER, began=f"2026-11-0{day}T10:00:00+00:00", settings={"policy": "default", "seed": seed}
        )
        for day, seed in ((1, "5"), (2, "6"))
    )
    return [
        write_journal(tmp_path / "five.jsonl", make_judged(MUL, "pass", 0.5), make_judged(ADD, "pass"), header=first),
        write_journal(tmp_path / "six.jsonl", make_judged(MUL, "fail", 3.0), make_judged(ADD, "pass"), header=second),
    ]


def test_runs_are_columns_with_what_they_have_not_in_common(
    two_seeds: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = report(capsys, *reversed(two_seeds)).splitlines()
    assert lines[:10] == [
        "## msprobe: 1 of 4 records failed, in 2 runs",
        "",
        "|  | 1 | 2 |",
        "| --- | --- | --- |",
        f"| journal | `{two_seeds[0]}` | `{two_seeds[1]}` |",
        "| began | 2026-11-01 10:00 | 2026-11-02 10:00 |",
        "| `seed` | `5` | `6` |",
        "| passed | 2 | 1 |",
        "| failed | 0 | 1 |",
        "",
    ]


def test_apis_that_came_out_otherwise_are_rows_and_the_others_are_counted(
    two_seeds: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = report(capsys, *two_seeds)
    assert "| `Torch.mul forward` | 0.5 | 3 fail |" in text
    assert "1 API is the same in all runs" in text
    assert "Torch.add forward" not in text


def test_a_failure_says_which_run_it_is_of(two_seeds: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    failure = report(capsys, *two_seeds).partition("### Failures")[2]
    assert f"In `{two_seeds[1]}`:" in failure
    assert f"In `{two_seeds[0]}`:" not in failure


def test_junit_has_a_suite_and_tables_a_folder_for_each_run(
    two_seeds: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(capsys, *two_seeds, "--junit", tmp_path / "report.xml", "--csv", tmp_path / "tables")
    suites = ET.parse(tmp_path / "report.xml").getroot().findall("testsuite")
    assert [suite.attrib["name"] for suite in suites] == [f"msprobe {path}" for path in two_seeds]
    assert [suite.attrib["failures"] for suite in suites] == ["0", "1"]
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["run1", "run2"]


def test_shards_are_reported_as_one_run_and_what_is_missing_or_doubled_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [
        write_journal(
            tmp_path / f"{place}.jsonl",
            make_judged(f"Torch.mul.{shard[0]}.forward", "pass"),
            header=msgspec.structs.replace(HEADER, shard=shard, began=f"2026-11-01T1{place}:00:00+00:00"),
        )
        for place, shard in enumerate(["1/3", "3/3", "1/3"])
    ]
    lines = report(capsys, *paths).splitlines()
    assert lines[:6] == [
        "## msprobe: 0 of 2 records failed",
        "",
        f"**1 shard is missing** of `{paths[0]} and 2 more`: `2/3`",
        "",
        f"Shard `1/3` occurs 2 times, the latest counts: `{paths[0]}`, `{paths[2]}`",
        "",
    ]
    assert "* Outcomes: 2 passed" in lines


def test_what_was_skipped_in_every_run_is_in_no_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        write_journal(tmp_path / name, skipped("Torch.no_such_api.0.forward", SkipReason.UNKNOWN_API))
        for name in ("a.jsonl", "b.jsonl")
    ]
    text = report(capsys, *paths)
    assert "differ" not in text
    assert "| skipped | 1 | 1 |" in text
