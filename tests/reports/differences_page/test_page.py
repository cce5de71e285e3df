"""The page of differences, looked at in a real browser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.reports.differences_page import Compared, Differences, write_differences_page
from tests.support.browser.chromium import click, texts

HOSTILE = "</script><img src=x onerror=alert(1)>"

pytestmark = pytest.mark.slow


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write a page and open it."""

    def open_page(rows: Sequence[Compared], **more: Any) -> Any:
        write_differences_page(tmp_path / "page.html", Differences("a", "b", "fact", rows, **more), title="Environment")
        browser.get_log("browser")
        browser.get("about:blank")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return open_page


ROWS = (
    Compared("same", "packages", "pass", "", "1", "1", 0.0),
    Compared("warned", "variables", "warn", "2, golden 3", "2", "3", 0.5),
    Compared(HOSTILE, "hyperparameters", "fail", "differs", "lr 0.003 cosine", "lr 0.001 cosine", 2.0),
    Compared("missing", "hyperparameters", "fail", "missing in the target", "", "7", math.inf),
)


def names(browser: Any) -> list[str]:
    return texts(browser, "#scroller tbody tr:not(.gap) td:nth-child(2)")


def test_what_differs_most_comes_first_and_what_is_equal_is_left_out(look: Callable[..., Any]) -> None:
    browser = look(ROWS)
    assert names(browser) == ["missing", HOSTILE, "warned"]
    assert texts(browser, "#count") == ["3 of 4 facts"]
    click(browser, "document.querySelector('#outcomes .pass')")
    assert names(browser) == ["missing", HOSTILE, "warned", "same"]
    assert browser.get_log("browser") == []


def test_where_both_sides_differ_is_marked(look: Callable[..., Any]) -> None:
    browser = look(ROWS)
    click(browser, "document.querySelectorAll('#scroller tbody tr:not(.gap)')[1]")
    assert texts(browser, "#details .side") == ["lr 0.003 cosine", "lr 0.001 cosine"]
    assert texts(browser, "#details .side mark") == ["3", "1"]


def test_groups_with_the_most_differences_come_first(look: Callable[..., Any]) -> None:
    browser = look(ROWS)
    assert [text.split()[0] for text in texts(browser, "#groups button")] == [
        "everything",
        "hyperparameters",
        "variables",
        "packages",
    ]
    click(browser, "document.querySelectorAll('#groups button')[1]")
    assert names(browser) == ["missing", HOSTILE]


def test_numbers_are_drawn_where_there_are_any(look: Callable[..., Any]) -> None:
    browser = look(ROWS, number_title="Distance")
    assert browser.execute_script("return table.plot.drawn.map((one) => one.point.label)") == [
        "same",
        "warned",
        HOSTILE,
        "missing",
    ]
    assert texts(browser, "#scroller th")[2] == "Distance"
    assert look(ROWS).execute_script("return byId('plot-box').hidden")


def test_a_link_opens_its_row(look: Callable[..., Any]) -> None:
    browser = look(ROWS)
    address = browser.current_url.partition("#")[0]
    browser.get("about:blank")
    browser.get(f"{address}#same")
    assert texts(browser, "#details h2") == ["same"]
