"""The reports that a comparison writes at its end."""

from __future__ import annotations

import csv
from pathlib import Path

import openpyxl
import pytest

EXAMPLE = Path(__file__).parents[4] / "examples" / "compare_runs"
OPTIONS = ("--msprobe-csv=out", "--msprobe-xlsx=out", "--msprobe-html=out/page.html")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    dumps = (f"--msprobe-compare={EXAMPLE / 'target'}", f"--msprobe-golden={EXAMPLE / 'golden'}")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--tb=no", "-rN", *dumps, *arguments)


def table(pytester: pytest.Pytester) -> list[list[str]]:
    (path,) = (pytester.path / "out").glob("compare_result_*.csv")
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_tables_and_page_are_written_and_named(pytester: pytest.Pytester) -> None:
    result = run(pytester, *OPTIONS)
    rows = table(pytester)
    (book,) = (pytester.path / "out").glob("compare_result_*.xlsx")
    assert openpyxl.load_workbook(book, read_only=True)["Sheet"].max_row == len(rows) > 500
    page = (pytester.path / "out" / "page.html").read_text()
    assert "Functional.linear.1.forward" in page
    result.stdout.fnmatch_lines(["msprobe report: */compare_result_*.csv", "msprobe report: */page.html"])


@pytest.mark.nightly
@pytest.mark.slow
def test_workers_write_the_same_rows_in_the_same_order(pytester: pytest.Pytester) -> None:
    run(pytester, "--msprobe-csv=out")
    alone = table(pytester)
    next((pytester.path / "out").iterdir()).unlink()
    run(pytester, "--msprobe-csv=out", "-n", "2")
    assert table(pytester) == alone


def test_what_cannot_be_written_is_said_and_the_rest_is_written(pytester: pytest.Pytester) -> None:
    (pytester.path / "out").mkdir()
    (pytester.path / "file").write_text("")
    same = f"--msprobe-golden={EXAMPLE / 'target'}"
    result = run(pytester, "--msprobe-html=file/page.html", "--msprobe-csv=out", same)
    assert len(table(pytester)) > 500
    result.stdout.fnmatch_lines(["ERROR: msprobe report: */file/page.html: cannot be written: File exists"])
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR


def test_reports_of_a_comparison_want_a_comparison(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--msprobe-xlsx=out")
    result.stderr.fnmatch_lines(
        ["ERROR: --msprobe-xlsx has nothing that it belongs to; use it with --msprobe-compare*"]
    )
