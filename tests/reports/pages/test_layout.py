"""The layout of all pages, looked at in a real browser: panes, tabs, columns, colours, links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from pytest_msprobe.reports.pages import write_page
from tests.support.browser.chromium import click, open_browser, set_system_theme, set_width, texts, until
from tests.support.browser.page_checks import serious_violations, wider_than_the_window
from tests.support.browser.serving import served

HOSTILE = "</script><img src=x onerror=alert(1)>"
DATA = {
    "title": "2 rows",
    "links": [["the graph", "graph%20of%20it.html", "modules and calls"]],
    "rows": [
        {"outcome": "fail", "why": HOSTILE, "margin": 3.5},
        {"outcome": "pass", "why": "equal", "margin": 0.25},
    ],
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with open_browser() as driver:
        yield driver


@pytest.fixture
def browser(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Open the page at 1 400 pixels in light colours; the browser has kept nothing of another test."""
    write_page(tmp_path / "page.html", "tests.reports.pages.sample_page", DATA, title="Sample", parts=("table",))
    set_width(chromium, 1400)
    set_system_theme(chromium, "light")
    with served(tmp_path) as address:
        chromium.get(f"{address}/page.html")
        yield chromium


def width(browser: Any, selector: str) -> int:
    found: int = browser.execute_script("return document.querySelector(arguments[0]).offsetWidth", selector)
    return found


def assert_after_reload(browser: Any, holds: Callable[[], bool]) -> None:
    """Assert that this holds before the page is reloaded and after it."""
    until(browser, holds)
    browser.refresh()
    until(browser, holds)


def press(browser: Any, selector: str, *keys: str) -> None:
    browser.find_element("css selector", selector).send_keys(*keys)


def test_the_head_has_title_notes_and_links_to_other_pages(browser: Any) -> None:
    assert texts(browser, "#title, #about, #notes, #links a") == [
        "2 rows",
        "two rows on a CPU",
        "the graph",
        "one note",
    ]
    assert browser.find_element("css selector", "#links a").get_attribute("href").endswith("/graph%20of%20it.html")


def test_the_size_of_a_pane_is_changed_by_keys_and_kept(browser: Any) -> None:
    border = ".separator[aria-controls=details-box]"
    press(browser, border, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    until(browser, lambda: width(browser, "#details-box") == 348)
    assert browser.find_element("css selector", border).get_attribute("aria-valuenow") == "348"
    assert_after_reload(browser, lambda: width(browser, "#details-box") == 348)


def test_a_pane_is_dragged_by_its_border(browser: Any) -> None:
    from selenium.webdriver import ActionChains

    border = browser.find_element("css selector", ".separator[aria-controls=groups-box]")
    ActionChains(browser).drag_and_drop_by_offset(border, 60, 0).perform()
    assert width(browser, "#groups-box") == 260


def test_a_folded_pane_stays_folded_and_leaves_its_room_to_the_table(browser: Any) -> None:
    before = width(browser, "#table-box")
    click(browser, "document.querySelector('#groups-box .fold')")
    assert_after_reload(browser, lambda: width(browser, "#groups-box") == 24)
    assert width(browser, "#table-box") == before + 176
    assert browser.find_element("css selector", "#groups-box .fold").get_attribute("aria-expanded") == "false"


def test_a_column_takes_the_room_that_is_left_until_it_is_given_a_width(browser: Any) -> None:
    from selenium.webdriver import ActionChains

    assert width(browser, "#scroller table") == browser.execute_script("return byId('scroller').clientWidth")
    title = browser.find_element("css selector", "th:nth-child(2) > div")
    before, size = width(browser, "th:nth-child(2)"), title.size
    corner = (size["width"] // 2 - 4, size["height"] // 2 - 4)
    drag = ActionChains(browser).move_to_element_with_offset(title, *corner).click_and_hold()
    drag.move_by_offset(-100, 0).release().perform()
    click(browser, "document.querySelector('th:nth-child(2) button')")
    assert width(browser, "th:nth-child(2)") == before - 100
    others = [width(browser, f"th:nth-child({place})") for place in (1, 3)]
    assert width(browser, "#scroller table") == before - 100 + sum(others)


def test_no_number_is_cut_and_a_name_gives_way_to_the_number_next_to_it(browser: Any) -> None:
    browser.execute_script("""
        const name = "a.".repeat(40), numbers = [-0.0012345678, 1.2345678e-200, 123456.78, Infinity];
        makeTable(byId("scroller"), numbers.map((number) => ({ name, number })), [
          { title: "Name", name: true, of: (row) => row.name }, { title: "E", number: true, of: (row) => row.number },
        ], { label: "Rows", open: () => {} }).draw();
    """)
    for pixels in (1400, 360):
        set_width(browser, pixels)
        until(browser, lambda: len(texts(browser, "#scroller td.number")) == 4)
        cells = "[...document.querySelectorAll('td.number')]"
        assert browser.execute_script(f"return {cells}.filter((one) => one.scrollWidth > one.clientWidth)") == []
        assert browser.execute_script("return byId('scroller').scrollWidth <= byId('scroller').clientWidth")
    assert browser.execute_script("return getComputedStyle(document.querySelector('td.name')).direction") == "rtl"


def test_tabs_are_changed_by_keys(browser: Any) -> None:
    press(browser, "[role=tab][aria-selected=true]", Keys.ARROW_RIGHT)
    assert texts(browser, "[aria-selected=true]") == ["Second"]
    assert [browser.find_element("id", each).is_displayed() for each in ("first-view", "second-view")] == [False, True]


def test_chosen_colours_are_kept_and_the_page_is_notified(browser: Any) -> None:
    browser.execute_script("window.changes = 0; addEventListener('themechange', () => { changes += 1; })")
    click(browser, "byId('theme')")
    click(browser, "byId('theme')")
    assert browser.execute_script("return [document.documentElement.dataset.theme, changes]") == ["dark", 1]
    assert_after_reload(browser, lambda: texts(browser, "#theme") == ["colors: dark"])
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"


def test_another_address_of_an_open_page_is_followed(browser: Any) -> None:
    browser.execute_script(
        "window.followed = []; onLink((fragment) => followed.push(fragment)); location.hash = '#a%2Fb'"
    )
    until(browser, lambda: browser.execute_script("return followed") == ["", "a/b"])


def test_the_slash_leads_to_the_search_but_is_typed_into_fields(browser: Any) -> None:
    browser.execute_script(
        "const field = element('input'); field.id = 'search';byId('table-box').prepend(field); onWords(field, () => {})"
    )
    press(browser, "#scroller", "/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    press(browser, "#search", "/")
    assert browser.find_element("id", "search").get_attribute("value") == "/"


def test_a_link_to_a_row_is_copied(browser: Any) -> None:
    press(browser, "#scroller", Keys.ARROW_DOWN)
    assert texts(browser, "#details h2") == [HOSTILE]
    press(browser, "#details .link", Keys.ENTER)
    until(browser, lambda: texts(browser, "#details .link") == ["copied"])


@pytest.mark.parametrize("pixels", [360, 768, 1400, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_or_hard_to_read_at_any_width(browser: Any, pixels: int, theme: str) -> None:
    set_system_theme(browser, theme)
    set_width(browser, pixels)
    browser.refresh()
    assert wider_than_the_window(browser) == []
    assert serious_violations(browser) == []
    assert browser.get_log("browser") == []


def test_on_a_narrow_screen_panes_are_stacked_in_their_order(browser: Any) -> None:
    set_width(browser, 360)
    browser.refresh()
    top = "return ['table-box', 'details-box', 'groups-box'].map((id) => byId(id).getBoundingClientRect().top)"
    tops = browser.execute_script(top)
    assert tops == sorted(tops)
    assert all(width(browser, f"#{pane}") > 300 for pane in ("table-box", "details-box", "groups-box"))
