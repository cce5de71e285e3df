"""The table of versions that `make test-matrix` writes into a page."""

from __future__ import annotations

from tests.support.environments.versions_table import PAGE, with_rows

EMPTY = "before\n<!-- Rows written by `make test-matrix`. -->\n<!-- End of these rows. -->\nafter\n"
OF_TORCH = {"python": "3.11.7", "torch": "2.13.0+cpu", "pytest": "9.2.0", "check": "362 passed", "date": "1 May 2026"}
OF_MINDSPORE = {"python": "3.10.13", "mindspore": "2.7.0", "torch": "2.13.0+cpu", "tests": "467 passed"}


def rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_rows_are_sorted_by_framework_and_version() -> None:
    older = OF_TORCH | {"torch": "2.9.1"}
    page = with_rows(EMPTY, [OF_MINDSPORE, OF_TORCH, older])
    assert [row[1:3] for row in rows(page)] == [["2.9.1", ""], ["2.13.0+cpu", ""], ["2.13.0+cpu", "2.7.0"]]
    assert page.startswith("before\n")
    assert page.endswith("after\n")


def test_a_run_replaces_the_rows_of_its_versions_and_keeps_the_others() -> None:
    before = with_rows(EMPTY, [OF_TORCH, OF_MINDSPORE])
    page = with_rows(before, [OF_TORCH | {"check": "361 passed, 1 failures", "date": "2 May 2026"}])
    (of_torch, of_mindspore) = rows(page)
    assert [of_torch[7], of_torch[-1]] == ["361 passed, 1 failures", "2 May 2026"]
    assert of_mindspore == rows(before)[1]


def test_the_page_has_the_lines_between_which_the_rows_are() -> None:
    assert "| 3.11.7 | 2.13.0+cpu |" in with_rows(PAGE.read_text(encoding="utf-8"), [OF_TORCH])
