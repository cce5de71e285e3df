"""The page of ranks by calls, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.reports.lanes_page import LaneCall, Lanes, write_lanes_page
from tests.support.browser.chromium import click, set_width, texts, until

HOSTILE = "</script><img src=x onerror=alert(1)>"

pytestmark = pytest.mark.slow


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write a page of calls and open it."""

    def open_page(calls: Sequence[LaneCall], lanes: int = 3, **more: Any) -> Any:
        page = Lanes("a run", "a step", [f"rank {lane}" for lane in range(lanes)], calls, **more)
        write_lanes_page(tmp_path / "page.html", page, title="Overflow")
        browser.get_log("browser")
        browser.get("about:blank")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return open_page


def calls() -> list[LaneCall]:
    """Return four calls on each of three ranks; that of rank 1 in column 2 is wrong, and rank 2 is given it."""
    made = [LaneCall(lane, column, f"op.{column}", "pass", "clean") for lane in range(3) for column in range(4)]
    made[6] = LaneCall(1, 2, HOSTILE, "fail", "critical", "inf arises", (("What was found", "max inf"),), begins=True)
    made[11] = LaneCall(2, 3, "op.3", "warn", "high", "inf received")
    return made


def colour_at(browser: Any, lane: int, column: int) -> list[int]:
    script = """const [lane, column] = arguments, ratio = devicePixelRatio;
        const x = grid.x(column) + 6, y = grid.y(lane) + grid.row - 5;
        return [...grid.canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3)"""
    found: list[int] = browser.execute_script(script, lane, column)
    return found


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", ".cells canvas").send_keys(*keys)


def test_it_opens_where_it_began_and_shows_what_was_found(look: Callable[..., Any]) -> None:
    browser = look(calls(), arrows=[(6, 11)])
    assert texts(browser, "#details h2") == [HOSTILE]
    assert "max inf" in texts(browser, "#details pre")
    assert texts(browser, "#details .others li") == ["rank 2, op.3"]
    assert texts(browser, "#scroller tbody tr.chosen td")[:3] == ["fail", HOSTILE, "inf arises"]
    assert browser.get_log("browser") == []


def test_cells_have_the_colour_of_what_came_of_them(look: Callable[..., Any]) -> None:
    browser = look(calls())
    right, wrong, warned = colour_at(browser, 0, 0), colour_at(browser, 1, 2), colour_at(browser, 2, 3)
    assert wrong == [0xCF, 0x22, 0x2E]
    assert warned == [0x92, 0x61, 0x00]
    assert colour_at(browser, 2, 1) == right


def share_of_ink(browser: Any, lane: int, column: int) -> float:
    """Return how much of the middle of a cell is coloured."""
    script = """const [row, column] = arguments, [x, y] = grid.middle({ row, column });
        const { data } = grid.canvas.getContext("2d").getImageData(x + 12, y - 8, 32, 16);
        return data.filter((_, at) => at % 4 === 3).reduce((sum, alpha) => sum + alpha / 255, 0) / (32 * 16)"""
    share: float = browser.execute_script(script, lane, column)
    return share


def test_what_is_missing_is_hatched_and_a_partner_more_closely(look: Callable[..., Any]) -> None:
    made = calls()
    made[0] = LaneCall(0, 0, "op.0", "missing")
    made[4] = LaneCall(1, 0, "op.0", "partner")
    browser = look(made)
    missing, partner, wrong = [share_of_ink(browser, *place) for place in ((0, 0), (1, 0), (1, 2))]
    assert 0.1 < missing < 0.35
    assert 0.35 < partner < 0.7
    assert wrong == 1


def test_a_drag_shows_fewer_calls_and_escape_all_of_them(look: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    browser = look([LaneCall(0, column, f"op.{column}", "pass") for column in range(100)], lanes=1)
    canvas = browser.find_element("css selector", ".cells canvas")
    ActionChains(browser).move_to_element(canvas).move_by_offset(
        0, -canvas.size["height"] // 2 + 30
    ).click_and_hold().move_by_offset(200, 0).release().perform()
    first, last = browser.execute_script("return [grid.from, grid.to]")
    assert 30 < first < last < 90
    press(browser, "\ue00c")
    assert browser.execute_script("return [grid.from, grid.to]") == [0, 100]


def test_arrow_keys_go_over_places_without_a_call(look: Callable[..., Any]) -> None:
    browser = look([LaneCall(0, 0, "op.0", "pass"), LaneCall(0, 2, "op.2", "fail"), LaneCall(1, 1, "op.1", "pass")])
    press(browser, "\ue012")
    assert texts(browser, "#grid-box [role=status]") == ["rank 0"]
    press(browser, "\ue015")
    assert texts(browser, "#details h2") == ["op.1"]


def test_arrow_keys_go_along_a_lane_and_to_others(look: Callable[..., Any]) -> None:
    browser = look(calls())
    press(browser, "\ue014", "\ue015")  # right, down
    assert texts(browser, "#grid-box [role=status]") == ["rank 2, op.3: high: inf received"]
    press(browser, "n")
    assert texts(browser, "#details h2") == [HOSTILE]


def test_the_grid_is_zoomed_about_the_chosen_call(look: Callable[..., Any]) -> None:
    many = [LaneCall(0, column, f"op.{column}", "pass") for column in range(1000)]
    many[600] = LaneCall(0, 600, "op.600", "fail")
    browser = look(many, lanes=1)
    press(browser, "+", "+")
    first, last = browser.execute_script("return [grid.from, grid.to]")
    assert last - first == 250
    assert first <= 600 < last
    press(browser, "0")
    assert browser.execute_script("return [grid.from, grid.to]") == [0, 1000]


def test_the_table_shows_one_rank(look: Callable[..., Any]) -> None:
    browser = look(calls())
    browser.execute_script("byId('lane').value = '1'; byId('lane').dispatchEvent(new Event('change'))")
    assert texts(browser, "#count") == ["4 of 12 calls"]


def test_on_a_narrow_screen_it_opens_at_its_head_and_a_chosen_call_is_scrolled_to(look: Callable[..., Any]) -> None:
    browser = look(calls())
    set_width(browser, 360)
    browser.refresh()
    assert texts(browser, "#details h2") == [HOSTILE]
    assert browser.execute_script("return scrollY") == 0
    click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')")
    assert browser.execute_script("return scrollY") > 0
    set_width(browser, 1500)


def test_a_link_opens_a_call_of_its_rank(look: Callable[..., Any]) -> None:
    browser = look(calls())
    address = browser.current_url.partition("#")[0]
    browser.get("about:blank")
    browser.get(f"{address}#rank%200%2Fop.3")
    assert browser.execute_script("return table.chosen()") == 3


def test_sixty_four_ranks_of_two_thousand_calls_stay_quick(look: Callable[..., Any]) -> None:
    many = [LaneCall(lane, column, f"op.{column}", "pass", "clean") for lane in range(64) for column in range(2000)]
    many[70_000] = LaneCall(35, 0, "op.0", "fail", "critical", "inf arises", begins=True)
    joins = [[lane * 2000 + column for lane in range(64)] for column in range(0, 2000, 4)]
    browser = look(many, lanes=64, joins=joins)
    until(browser, lambda: texts(browser, "#details h2") == ["op.0"])
    browser.find_element("id", "search").send_keys("op.1999")
    until(browser, lambda: texts(browser, "#count") == ["64 of 128\u202f000 calls"])
    assert click(browser, "document.querySelector('#scroller tbody tr:not(.gap)')") is None
    assert texts(browser, "#details h2") == ["op.1999"]
    assert browser.get_log("browser") == []
