from __future__ import annotations

import csv
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import VERSION, Header
from pytest_msprobe.results.outcomes import SkipReason
from tests.support import journals
from tests.support.hosts.disks import files_of_at_most

Write = Callable[..., Path]


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["report", *map(str, words)]) == 2
    return capsys.readouterr().err


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))


def blocks(text: str) -> list[str]:
    return [part.partition("\n```")[0] for part in text.split("```text\n")[1:]]


def test_markdown_goes_to_the_screen_and_begins_with_what_was_checked_and_how_it_ended(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(capsys, journal).splitlines()[:7] == [
        "## msprobe: 3 of 8 records failed",
        "",
        "* Outcomes: 1 passed, 1 warned, 2 failed, 1 crashed, 3 skipped",
        "* Dump: `/data/run/dump.json`",
        "* Device: `npu:3 Ascend 910B, torch 2.7.1`",
        "* Math modes: `HF32 matmul off, deterministic on`",
        "* Settings: `policy default, device npu, seed 5`",
    ]


def test_failures_come_worst_first_with_reason_numbers_and_the_command_that_repeats_them(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(report(capsys, journal))
    assert [block.splitlines()[2].split()[0] for block in found] == [
        "Torch.bmm.0.forward",
        "Torch.mul.0.backward",
        "Torch.mul.0.forward",
    ]
    assert "max_ulp_error is 140" in found[1].splitlines()[0]
    assert found[1].splitlines()[-1] == (
        "Run this item alone: pytest --msprobe-dump=/data/run/dump.json::Torch.mul.0.backward --msprobe-device npu:3"
    )


def test_skips_are_counted_by_reason_and_the_slowest_record_is_named(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = report(capsys, journal)
    assert f"| `{SkipReason.UNKNOWN_API.value}` | 2 |\n| `{SkipReason.COLLECTIVE.value}` | 1 |" in text
    assert "| `Torch.add.0.forward` | 0.25 |" in text


def test_a_page_with_thousands_of_long_failures_still_fits_into_an_issue(
    write_journal: Write, judged: Any, header: Header, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "`|" * 3000
    results = (judged(f"{long}.{i}.forward", "fail", margin=1.5 + i, reason=long) for i in range(2000))
    many = {f"/data/{i}/{long}/dump.json": str(i) for i in range(3000)}
    header = Header(dumps=many, settings={long: long}, root=long, rerun=header.rerun)
    text = report(capsys, write_journal(*results, header=header))
    assert "### Failures, the worst 10 of 2000" in text
    assert "and 2995 more" in text
    assert len(text) < 65_536


def test_a_journal_of_which_nothing_finished_gives_a_report(
    write_journal: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "0 of 0 records failed" in report(capsys, write_journal())


def test_junit_has_pytests_names_outcomes_and_properties(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(capsys, journal, "--junit", tmp_path / "report.xml") == ""
    (suite,) = ET.parse(tmp_path / "report.xml").getroot()
    counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "3", "errors": "0", "skipped": "3"}
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    wrong = cases["Torch.mul.0.forward"]
    assert wrong.attrib["classname"] == "run.dump.json"
    assert {entry.attrib["name"]: entry.attrib["value"] for entry in wrong.iter("property")} == {
        "msprobe.verdict": "fail",
        "msprobe.standard": "ulp",
        "msprobe.margin": "3",
        "msprobe.device": "npu:3",
        "msprobe.math_modes": "HF32 matmul off, deterministic on",
        "msprobe.seed": "5",
    }
    (failure,) = wrong.iter("failure")
    assert "max_ulp_error is 6" in (failure.text or "")
    (crash,) = cases["Torch.bmm.0.forward"].iter("failure")
    assert crash.attrib["type"] == "crash"
    (skip,) = cases["Torch.no_such_api.0.forward"].iter("skipped")
    assert skip.attrib["message"] == SkipReason.UNKNOWN_API.value
    assert not list(cases["Torch.exp.0.forward"].iter("failure"))


def test_the_suite_shows_dump_settings_and_what_it_ran_on(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(capsys, journal, "--junit", tmp_path / "report.xml")
    (suite,) = ET.parse(tmp_path / "report.xml").getroot()
    reported = {entry.attrib["name"]: entry.attrib["value"] for entry in suite.findall("properties/property")}
    assert reported == {
        "msprobe.dump": "/data/run/dump.json",
        "msprobe.policy": "default",
        "msprobe.ran_on": "npu:3: npu:3 Ascend 910B, torch 2.7.1, HF32 matmul off, deterministic on",
    }


def test_the_tables_are_those_of_a_run_and_show_the_numbers_that_decided(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(capsys, journal, "--csv", tmp_path / "out")
    (result,), (details,) = ((tmp_path / "out").glob(f"*_{kind}_*.csv") for kind in ("result", "details"))
    assert rows(result)[1:4] == [
        ["Torch.add.0", "pass", " "],
        ["Torch.mul.0", "error", "error"],
        ["Torch.bmm.0", "error", " "],
    ]
    header, _, second, *_ = rows(details)
    wrong = dict(zip(header, second, strict=True))
    assert (wrong["API Name"], wrong["Shape"], wrong["Status"]) == ("Torch.mul.0.forward.output.0", "(4, 8)", "error")
    assert math.isclose(float(wrong["ULP误差最大值"]), 6.0)


def test_two_dumps_have_tables_of_their_own(tmp_path: Path, judged: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = judged("Torch.add.0.forward", "pass")
    entries = [journals.entry(result, f"rank{rank}/dump.json") for rank in (0, 1)]
    journal = journals.write_journal(tmp_path / "run.jsonl", *entries)
    report(capsys, journal, "--csv", tmp_path / "out")
    for rank in (0, 1):
        (table,) = (tmp_path / "out" / f"rank{rank}").glob("accuracy_checking_result_*.csv")
        assert [row[0] for row in rows(table)][1:] == ["Torch.add.0"]


def test_several_reports_are_made_at_once(journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    words = ("--junit", tmp_path / "report.xml", "--csv", tmp_path / "out", "--markdown", page)
    assert report(capsys, journal, *words) == ""
    assert page.read_text(encoding="utf-8") == report(capsys, journal, *words[:4], "--markdown", "-")


def test_a_run_that_died_is_reported_up_to_its_last_whole_line(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.write_bytes(journal.read_bytes()[:-7])
    assert "of 7 records failed" in report(capsys, journal)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\n", b"hello\n", b'{"data": {}}\n', b"\x00" * 100, b"[" * 100_000])
def test_a_file_that_is_no_journal_is_one_clear_error(
    tmp_path: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.write_bytes(text)
    assert error(capsys, path) == (f"pytest-msprobe: {path}: not a journal; pass a file written by --msprobe-journal\n")


@pytest.mark.parametrize(("version", "word"), [(0, "an older"), (99, "a newer")])
def test_a_journal_of_another_version_is_one_clear_error(
    journal: Path, version: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.write_text(journal.read_text().replace(f'"msprobe_journal":{VERSION}', f'"msprobe_journal":{version}'))
    assert f"{journal}: written by {word} version (format {version}, not {VERSION}); " in error(capsys, journal)


def test_a_damaged_line_is_named_with_its_number(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal.read_bytes().split(b"\n")
    lines[3] = lines[3][:-5]
    journal.write_bytes(b"\n".join(lines))
    assert f"{journal}: line 4 is damaged" in error(capsys, journal)


def test_a_missing_journal_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "absent.jsonl: cannot be read: No such file" in error(capsys, tmp_path / "absent.jsonl")


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--csv"])
def test_a_place_that_cannot_be_written_is_one_clear_error(
    journal: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    reported = error(capsys, journal, option, tmp_path / "file" / "below")
    assert "file" in reported
    assert "cannot be written: Not a directory" in reported


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--csv"])
def test_a_disk_that_takes_no_more_leaves_no_half_report(
    journal: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    place = out if option == "--csv" else out / "report"
    with files_of_at_most(300):
        reported = error(capsys, journal, option, place)
    assert f"{place}: cannot be written: File too large" in reported
    assert list(out.iterdir()) == []


def test_a_report_is_made_without_loading_torch(journal: Path, tmp_path: Path) -> None:
    words = ["report", str(journal), "--junit", str(tmp_path / "report.xml"), "--markdown", "-"]
    code = (
        f"import sys; from pytest_msprobe.commands.main import main; main({words!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_without_junitparser_the_remedy_is_named(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "junitparser", None)
    reported = error(capsys, journal, "--junit", tmp_path / "report.xml")
    assert "--junit needs junitparser; pip install 'pytest-msprobe[junit]'" in reported
