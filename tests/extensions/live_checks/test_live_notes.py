"""The page of a live check, whose records are of several steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import Entry, Header, JournalWriter, LeftOut
from tests.support.browser.chromium import click, open_browser, texts
from tests.support.browser.pages import page_data
from tests.support.journals import make_judged

LIVE = Header(dumps={}, settings={"mode": "live", "policy": "default"}, root="/data", rerun=("python", "train.py"))


def write_page(folder: Path, entries: list[Entry], header: Header, **left_out: int) -> Path:
    path = folder / "run.jsonl"
    writer = JournalWriter(path, header)
    for each in entries:
        writer.write(each)
    if left_out:
        writer.write(LeftOut(left_out))
    writer.close()
    assert main(["report", str(path), "--html", str(folder / "run.html")]) == 0
    return folder / "run.html"


def judged(step: int, margin: float, name: str = "Torch.mul.0.forward") -> Entry:
    result = make_judged(name, "fail" if margin > 1 else "pass", margin)
    return Entry(f"step{step}/rank::{name}", result.outcome, result)


def test_a_live_check_that_was_cut_short_does_not_know_what_it_left_out(tmp_path: Path) -> None:
    (run,) = page_data(write_page(tmp_path, [judged(4, 0.5)], LIVE))["runs"]
    assert run["notes"] == [
        "Judged while the training ran: 1 result of step 4.",
        "The check did not come to its end: what it left out is not known.",
    ]


def test_the_training_runs_a_call_of_a_live_check_again(tmp_path: Path) -> None:
    (run,) = page_data(write_page(tmp_path, [judged(4, 0.5)], LIVE, waiting=2))["runs"]
    assert run["rerunTitle"] == "Run the training again"


@pytest.mark.slow
def test_a_live_check_is_grouped_by_step_in_the_order_of_steps(tmp_path: Path) -> None:
    entries = [judged(step, margin) for step, margin in ((2, 0.5), (10, 7.0), (9, 0.9))]
    page = write_page(tmp_path, entries, LIVE, waiting=3)
    with open_browser() as browser:
        browser.get(page.as_uri())
        assert texts(browser, "#notes p")[-1] == "Left out, calls and gradients: 3 waiting."
        choose_group(browser, "Step")
        assert texts(browser, "#groups .name") == ["everything", "step 2", "step 9", "step 10"]
        click(browser, "document.querySelector('#groups button:last-child')")
        assert texts(browser, "#count") == ["1 of 3 records in step 10"]
        click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")
        assert "Run the training again" in texts(browser, "#details p")
        assert browser.get_log("browser") == []


def choose_group(browser: Any, name: str) -> None:
    browser.execute_script(
        "const by = document.getElementById('by');"
        "by.value = [...by.options].find((one) => one.textContent === arguments[0]).value;"
        "by.dispatchEvent(new Event('change'));",
        name,
    )
