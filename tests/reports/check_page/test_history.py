"""What the page of a check shows of earlier runs, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_msprobe.commands.main import main
from tests.support.browser.chromium import click, open_browser, set_width, texts, until
from tests.support.browser.page_checks import serious_violations, wider_than_the_window
from tests.support.browser.pages import page_data
from tests.support.journals import HEADER, START, entry, make_judged

pytestmark = pytest.mark.slow

BROKEN, OLD, NEW = "Torch.mul.0.forward", "Torch.bmm.0.forward", "Torch.add.0.forward"
DEVICE = "npu:3 <img src=x onerror=alert(1)>"


def _night(folder: Path, day: int, margins: dict[str, float], device: str = DEVICE) -> Path:
    """Write a journal and the page next to it."""
    from pytest_msprobe.journal import JournalWriter

    path = folder / f"javascript:alert({day}).jsonl"
    writer = JournalWriter(path, msgspec.structs.replace(HEADER, began=f"2026-11-{day:02}T03:00:00+00:00"))
    writer.write(msgspec.structs.replace(START, description=device))
    for name, margin in margins.items():
        writer.write(entry(make_judged(name, "fail" if margin > 1 else "pass", margin)))
    writer.close()
    assert main(["report", str(path), "--html", str(path.with_suffix(".html")), "--history", str(folder)]) == 0
    return path.with_suffix(".html")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture
def browser(driver: Any, tmp_path: Path) -> Any:
    """Open the page of a third run, in which one record fails anew, one still fails, and one is new."""
    _night(tmp_path, 1, {BROKEN: 0.1, OLD: 0.5}, device="npu:3 torch 2.7.0")
    _night(tmp_path, 2, {BROKEN: 0.1, OLD: 7.0})
    page = _night(tmp_path, 3, {BROKEN: 5.0, OLD: 7.0, NEW: 0.3})
    driver.get("about:blank")
    driver.get(page.as_uri())
    yield driver
    assert driver.get_log("browser") == []


def test_a_row_says_what_it_was_and_opens_to_its_results(browser: Any) -> None:
    assert texts(browser, "#scroller tbody tr:not(.gap) td:nth-child(2)") == ["failed 1x", "passed 2x", "new"]
    assert texts(browser, "#details li")[:2] == ["1 fails that passed last time", "1 is new"]

    click(browser, "document.querySelector('#details li button')")
    assert texts(browser, "#count") == ["1 of 3 records in passed last time"]
    click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")

    assert browser.execute_script("return document.querySelector('.past').getAttribute('aria-label')").endswith(
        "pass, pass"
    )
    click(browser, "document.querySelector('#details details:not(.further) summary')")
    assert texts(browser, "#details .results td") == [
        *("2026-11-02 03:00", "pass", "0.1", DEVICE),
        *("2026-11-01 03:00", "pass", "0.1", "npu:3 torch 2.7.0"),
    ]


def test_a_result_leads_to_the_page_of_its_run_at_the_record(browser: Any) -> None:
    until(browser, lambda: bool(texts(browser, "#scroller tbody tr:not(.gap)")))
    click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")
    click(browser, "document.querySelector('#details details:not(.further) summary')")
    click(browser, "document.querySelector('#details .results a')")
    until(browser, lambda: "alert(2)" in browser.title)
    assert texts(browser, "#details h2") == [OLD]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_history_is_within_the_window_and_can_be_read_by_everyone(browser: Any, width: int, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    set_width(browser, width)
    for row in (1, 2):
        click(browser, f"document.querySelectorAll('#scroller tbody tr:not(.gap)')[{row - 1}]")
        click(browser, "document.querySelector('#details details:not([open]) summary') ?? document.body")
        assert wider_than_the_window(browser) == []
        assert serious_violations(browser) == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    set_width(browser, 1400)


def test_a_page_without_history_has_no_such_column(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "alone.html"
    assert main(["report", str(tmp_path / "javascript:alert(1).jsonl"), "--html", str(page)]) == 0
    assert page_data(page)["history"] is None
    browser.get(page.as_uri())
    assert "Before" not in texts(browser, "#scroller th")
