"""``pytest-msprobe report --operators``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import Entry, Header
from pytest_msprobe.results.outcomes import Breakdown, SkipReason
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from tests.support.journals import entry, make_judged, skipped, write_journal


def of_dtype(dtype: str, result: DirectionResult) -> Entry:
    return entry(result, f"{dtype}-tensor/step0/rank/dump.json")


def header(began: str = "2026-01-01T00:00:00+00:00", **settings: str) -> Header:
    dumps = {f"/data/{dtype}-tensor/step0/rank/dump.json": dtype for dtype in ("float32", "bfloat16")}
    return Header(dumps=dumps, settings={"policy": "default", **settings}, root="/data", began=began)


def report(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["report", "--operators", *map(str, words)]) == 0
    return capsys.readouterr().out


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_has_an_operator_with_its_dtypes_and_what_came_of_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write_journal(
        tmp_path / "run.jsonl",
        of_dtype("float32", make_judged("Torch.add.0.forward", "pass")),
        of_dtype("bfloat16", make_judged("Torch.add.0.forward", "pass")),
        of_dtype("bfloat16", make_judged("Torch.add.0.backward", "warn", reason="a little")),
        of_dtype("bfloat16", make_judged("Torch.mul.0.forward", "fail", 3.0, "far off")),
        header=header(),
    )
    text = report(capsys, journal)
    assert text.startswith("## Operators on `npu:3 Ascend 910B, torch 2.7.1`: 1 right, 1 wrong")
    assert "| float32 | 1 | 1 |  |  |  |" in text
    assert "| bfloat16 | 2 | 2 | 1 |  |  |" in text
    assert rows(text) == [
        ["`Torch.mul`", "bfloat16", "", "1", "", "", "`fail: output.0: far off`"],
        ["`Torch.add`", "float32 bfloat16", "3", "", "", "", "`warn: output.0: a little`"],
    ]


def test_an_operator_that_the_device_lacks_is_not_implemented_and_never_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write_journal(
        tmp_path / "run.jsonl",
        of_dtype("float32", skipped("Torch.erfinv.0.forward", SkipReason.UNSUPPORTED)),
        of_dtype("float32", skipped("Torch.rrelu.0.forward", SkipReason.UNSPECIFIED)),
        header=header(),
    )
    text = report(capsys, journal)
    assert "0 right, 0 wrong, 1 not implemented, 1 not judged" in text
    assert rows(text) == [
        ["`Torch.erfinv`", "float32", "", "", "1", "", f"`{SkipReason.UNSUPPORTED.value}`"],
        ["`Torch.rrelu`", "float32", "", "", "", "1", f"`{SkipReason.UNSPECIFIED.value}`"],
    ]


def test_a_crash_counts_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    died = failed_without_result("Torch.segment_reduce.0.forward", Breakdown.CRASH, "died of SIGSEGV")
    text = report(capsys, write_journal(tmp_path / "run.jsonl", of_dtype("float32", died), header=header()))
    assert rows(text)[0][3] == "1"
    assert "crash: crash: died of SIGSEGV" in text


def test_two_runs_show_which_operators_came_to_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_journal(
        tmp_path / "before.jsonl",
        of_dtype("float32", make_judged("Torch.add.0.forward", "pass")),
        of_dtype("float32", make_judged("Torch.exp.0.forward", "pass")),
        of_dtype("bfloat16", make_judged("Torch.exp.0.forward", "pass")),
        of_dtype("float32", skipped("Torch.erf.0.forward", SkipReason.UNSUPPORTED)),
        header=header(),
    )
    after = write_journal(
        tmp_path / "after.jsonl",
        of_dtype("float32", make_judged("Torch.add.0.forward", "pass")),
        of_dtype("float32", make_judged("Torch.exp.0.forward", "pass")),
        of_dtype("bfloat16", make_judged("Torch.exp.0.forward", "fail", 4.0, "wrong now")),
        of_dtype("float32", make_judged("Torch.erf.0.forward", "pass")),
        header=header("2026-02-01T00:00:00+00:00", device="npu"),
    )
    text = report(capsys, before, after)
    assert ": 1 became wrong" in text.splitlines()[0]
    assert "2 of 4 operators and dtypes came to the same." in text
    assert rows(text) == [
        ["`Torch.exp`", "bfloat16", "right", "wrong", "`fail: output.0: wrong now`"],
        ["`Torch.erf`", "float32", "not implemented", "right", f"`{SkipReason.UNSUPPORTED.value}`"],
    ]


def test_a_dump_of_a_training_has_the_dtypes_of_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = write_journal(tmp_path / "run.jsonl", make_judged("Torch.add.0.forward", "pass"))
    assert rows(report(capsys, journal)) == [["`Torch.add`", "float32", "1", "", "", "", ""]]


def test_the_table_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = write_journal(tmp_path / "run.jsonl", make_judged("Torch.add.0.forward", "pass"))
    assert report(capsys, journal, "--markdown", tmp_path / "table.md") == ""
    assert "| `Torch.add` |" in (tmp_path / "table.md").read_text()


def test_other_reports_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = write_journal(tmp_path / "run.jsonl", make_judged("Torch.add.0.forward", "pass"))
    assert main(["report", "--operators", str(journal), "--junit", str(tmp_path / "report.xml")]) == 2
    assert "--junit does not work with --operators; remove one of them" in capsys.readouterr().err
