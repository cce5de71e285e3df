"""The page of a trend, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.extensions.trend.margins import make_trend
from pytest_msprobe.extensions.trend.trend_report import write_trend_page
from pytest_msprobe.journal import read_journal
from pytest_msprobe.journal.shards import Part, whole_runs
from tests.support.browser.chromium import click, open_browser, texts, texts_drawn_on, until
from tests.support.journals import make_judged, with_spread, write_journal

HOSTILE = "</script><img src=x onerror=alert(1)>"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Open the page of two runs of three records, of which one got worse."""
    folder = tmp_path_factory.mktemp("trend")
    paths = [
        write_journal(
            folder / f"{number}.jsonl",
            make_judged(HOSTILE, "pass", 0.5),
            make_judged("Torch.mul.0.forward", "fail" if margin > 1 else "pass", margin),
            make_judged("Torch.add.0.forward", "pass", 0.1),
        )
        for number, margin in enumerate((0.1, 3.0))
    ]
    write_trend_page(folder / "page.html", make_trend(whole_runs([Part(path, read_journal(path)) for path in paths])))
    with open_browser() as driver:
        driver.get((folder / "page.html").as_uri())
        yield driver


def test_what_got_worse_comes_first_and_is_open(browser: Any) -> None:
    cells = texts(browser, "#scroller tbody tr.chosen td")
    assert cells == ["worse", "Torch.mul forward", "x30", "0.1", "3 fail"]
    assert texts(browser, "#details h2") == ["Torch.mul forward"]
    assert len(browser.execute_script("return plot.drawn")) == 2
    assert texts(browser, "h1") == ["1 of 3 APIs got worse in the last of 2 runs, first Torch.mul forward, x30"]
    (again,) = texts(browser, "#details .command pre")
    assert again == "pytest --msprobe-dump=/data/run/dump.json::Torch.mul.0.forward --msprobe-device npu:3"
    assert browser.get_log("browser") == []


def test_the_axis_of_a_chart_holds_the_largest_margin_and_factors_are_short(tmp_path: Path) -> None:
    margins = (1.0, 2e3, 2e5, 2e7)
    paths = [
        write_journal(tmp_path / f"{number}.jsonl", make_judged("Torch.mul.0.forward", "fail", margin))
        for number, margin in enumerate(margins)
    ]
    write_trend_page(tmp_path / "page.html", make_trend(whole_runs([Part(path, read_journal(path)) for path in paths])))
    with open_browser() as driver:
        driver.get((tmp_path / "page.html").as_uri())
        heights = driver.execute_script("return plot.drawn.map((found) => found.y)")
        assert heights == sorted(set(heights), reverse=True)
        assert heights[-1] >= 10
        assert texts(driver, "#scroller tr.chosen td")[2] == "x100"
        assert texts(driver, "#details li")[-1].partition(": ")[2].startswith("2e7 fail")


def test_each_api_that_is_opened_has_its_own_numbers_in_one_chart(browser: Any) -> None:
    for place, name in enumerate(texts(browser, "#scroller tbody tr:not(.gap) td:nth-child(2)")):
        click(browser, f"document.querySelectorAll('#scroller tbody tr:not(.gap)')[{place}]")
        until(browser, lambda: len(browser.find_elements("css selector", "#details .uplot")) == 1)
        label = browser.find_element("css selector", "#details .plot-canvas").get_attribute("aria-label")
        assert label == f"Margins of {name} by run"
    click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")


def test_a_hostile_name_is_text(browser: Any) -> None:
    assert HOSTILE in texts(browser, "#scroller tbody td:nth-child(2)")


def test_what_is_as_before_can_be_left_out(browser: Any) -> None:
    last = "document.querySelector('#outcomes button:last-child')"
    click(browser, last)
    assert texts(browser, "#count") == ["1 of 3 APIs"]
    click(browser, last)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Open the page of three runs of a monitored training, whose second lacks a series."""
    folder = tmp_path_factory.mktemp("watched")
    values = ([1.0, 2.0, 4.0], None, [0.001, 8.0, 16.0])
    paths = [
        write_journal(
            folder / f"{number}.jsonl", *([] if spread is None else [with_spread(HOSTILE + "/norm", *spread)])
        )
        for number, spread in enumerate(values)
    ]
    write_trend_page(folder / "page.html", make_trend(whole_runs([Part(path, read_journal(path)) for path in paths])))
    with open_browser() as driver:
        driver.get((folder / "page.html").as_uri())
        yield driver


def test_a_series_has_a_point_for_each_run_that_judged_it(watched: Any) -> None:
    assert texts(watched, "#plots .name") == [f"{HOSTILE}/norm"]
    name, *by_run = watched.find_element("css selector", "#plots button").get_attribute("title").splitlines()
    assert name == f"{HOSTILE}/norm"
    assert [text.partition(": ")[2] for text in by_run] == ["2, from 1 to 4", "8, from 0.001 to 16"]
    assert texts_drawn_on(watched, "drawSeries()") == {"0.001", "16", "1", "2", "3"}
    assert watched.get_log("browser") == []


def test_a_click_on_a_series_opens_its_item(watched: Any) -> None:
    click(watched, "document.querySelector('#plots button')")
    assert texts(watched, "#details h2") == [f"{HOSTILE}/norm"]


def test_without_series_there_is_no_room_for_them(browser: Any) -> None:
    assert browser.execute_script("return document.getElementById('series').offsetHeight") == 0
