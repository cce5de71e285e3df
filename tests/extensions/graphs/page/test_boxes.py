"""The boxes and edges of a graph, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.extensions.graphs.data_flow import Edge
from pytest_msprobe.extensions.graphs.graph_page import Drawing, Mark, Run, drawn
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind, Node
from pytest_msprobe.reports.pages import write_page
from tests.support.browser.chromium import click, set_width, texts, until
from tests.support.browser.serving import served

pytestmark = pytest.mark.slow

UP, DOWN, RIGHT, ENTER, ESCAPE = "\ue013", "\ue015", "\ue014", "\ue007", "\ue00c"
CULPRIT = "Torch.op.250.forward"


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Write the page of a chain of calls in blocks, of which one call is the culprit, and open it."""

    def open_page(calls: int, inside: int, culprit: str = CULPRIT) -> Any:
        names = [f"Torch.op.{place}.forward" for place in range(calls)]
        blocks = [f"Module.layers.{place}.Block.forward.0" for place in range(-(-calls // inside))]
        nodes = {"root": Node("root", Kind.MODULE, children=blocks)}
        for place, block in enumerate(blocks):
            own = names[inside * place : inside * place + inside]
            nodes[block] = Node(block, Kind.MODULE, "root", own)
            nodes |= {name: Node(name, Kind.API, block) for name in own}
        edges = [Edge(before, "output.0", after, "input.0") for before, after in pairwise(names)]
        run = Run(Graph("root", nodes), edges, {name: place for place, name in enumerate(nodes)})
        graphs = drawn([Drawing("", run, {culprit: Mark("fail", "culprit")})])
        data = {"title": "", "about": "", "calls": [], "graphs": graphs}
        write_page(
            tmp_path / "page.html",
            "pytest_msprobe.extensions.graphs",
            data,
            title="Sample",
            parts=("dagre", "graph"),
        )
        browser.get_log("browser")
        browser.get(f"{address}/page.html")
        until(browser, lambda: bool(texts(browser, ".boxes .chosen text")))
        return browser

    with served(tmp_path) as address:
        yield open_page


def chosen(browser: Any) -> str:
    (name,) = texts(browser, "#graph .details h2")
    return name


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", ".boxes").send_keys(*keys)


def click_box(browser: Any, selector: str, event: str = "click") -> None:
    """Click the first element of a selector in the drawing."""
    browser.execute_script(
        "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent(arguments[1], { bubbles: true }))",
        selector,
        event,
    )


def seen(browser: Any) -> list[bool]:
    """Return whether outline and boxes are shown."""
    return [browser.find_element("id", f"graph-{name}").is_displayed() for name in ("outline", "boxes")]


def settled(browser: Any, name: str) -> None:
    """Wait until this is chosen in the outline and drawn so in the boxes."""
    until(browser, lambda: texts(browser, ".boxes .chosen title") == [name])
    assert chosen(browser) == name


def test_the_culprit_is_in_its_open_module_among_closed_ones(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    settled(browser, CULPRIT)
    assert texts(browser, ".boxes .module title") == ["Module.layers.25.Block.forward.0"]
    assert len(browser.find_elements("css selector", ".boxes .node.closed")) == 29
    assert len(browser.find_elements("css selector", ".boxes .node:not(.closed)")) == 10
    assert texts(browser, ".boxes .culprit text")[0] == "op"
    assert browser.get_log("browser") == []


def test_boxes_do_not_overlap_and_edges_join_them(look: Callable[..., Any]) -> None:
    browser = look(30, 5, culprit="Torch.op.7.forward")
    boxes = browser.execute_script(
        "return [...view.boxes.layout.items.values()].filter((one) => !one.isOpen)"
        ".map(({ x, y, width, height }) => [x - width / 2, y - height / 2, x + width / 2, y + height / 2])"
    )
    overlapping = [
        (one, other)
        for place, one in enumerate(boxes)
        for other in boxes[place + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]
    assert overlapping == []
    edges = browser.execute_script("return view.boxes.drawing.edges.map((edge) => [edge.from, edge.to])")
    assert len(edges) == len(boxes) - 1


def test_keys_follow_the_values_open_and_go_out(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    press(browser, DOWN)
    settled(browser, "Torch.op.251.forward")
    press(browser, UP)
    settled(browser, CULPRIT)
    press(browser, ESCAPE)
    settled(browser, "Module.layers.25.Block.forward.0")
    press(browser, ENTER)
    assert browser.find_elements("css selector", ".boxes .module") == []
    press(browser, RIGHT)
    settled(browser, "Module.layers.26.Block.forward.0")


def test_what_is_chosen_in_the_outline_is_so_in_the_boxes_and_the_other_way_round(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    click(
        browser,
        "[...document.querySelectorAll('#graph .call')].find((one) => one.title.startsWith('Module.layers.24.'))",
    )
    settled(browser, "Module.layers.24.Block.forward.0")
    browser.execute_script(
        "const box = [...document.querySelectorAll('.boxes .node')]"
        ".find((one) => one.textContent.startsWith('Module.layers.23.'));"
        "box.querySelector('rect').dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    settled(browser, "Module.layers.23.Block.forward.0")


def test_of_a_module_of_many_calls_those_that_are_alike_are_one_box(look: Callable[..., Any]) -> None:
    browser = look(100_000, 50_000, culprit="Torch.op.20000.forward")
    settled(browser, "Torch.op.20000.forward")
    assert texts(browser, ".boxes .others text:not(.fold-box text)") == ["op", "20000 alike", "op", "29999 alike"]
    assert texts(browser, "#graph-boxes .note") == ["calls that are alike are one box"]
    assert len(browser.find_elements("css selector", ".boxes .node")) == 4


def test_calls_that_are_alike_are_spread_in_ranges(look: Callable[..., Any]) -> None:
    browser = look(100_000, 50_000, culprit="Torch.op.20000.forward")
    click_box(browser, ".boxes .others rect")
    assert texts(browser, ".boxes .others text:not(.fold-box text)") == ["calls 61 to 50000", "of 50000, 1 wrong"]
    assert texts(browser, "#graph-boxes .note") == ["60 of 50000 calls are drawn"]
    click_box(browser, ".boxes .others rect")
    ranges = ["calls 1 to 60", "of 50000", "calls 121 to 50000", "of 50000, 1 wrong"]
    assert sorted(texts(browser, ".boxes .others text:not(.fold-box text)")) == sorted(ranges)
    assert len(browser.find_elements("css selector", ".boxes *")) < 1000


def test_what_differs_inside_is_not_alike(look: Callable[..., Any]) -> None:
    browser = look(800, 10, culprit="Torch.op.250.forward")
    stacks = ["layers.0 to layers.24", "25 alike", "layers.26 to layers.79", "54 alike"]
    assert texts(browser, ".boxes .others text:not(.fold-box text)") == stacks
    press(browser, ESCAPE, RIGHT)
    settled(browser, "Module.layers.26.Block.forward.0")
    press(browser, *[RIGHT] * 40)
    settled(browser, "Module.layers.66.Block.forward.0")


def test_a_module_is_opened_by_its_sign_and_by_two_clicks(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    first = "Module.layers.0.Block.forward.0"
    click_box(browser, ".boxes .closed .fold-box text")
    settled(browser, first)
    assert first in texts(browser, ".boxes .module title")
    for times in (1, 0):
        click_box(browser, ".boxes .module.chosen > rect, .boxes .closed.chosen > rect", "dblclick")
        assert texts(browser, ".boxes .module title").count(first) == 1 - times


def test_a_drag_moves_the_drawing_and_chooses_nothing(look: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    browser = look(300, 10)
    place = "return [view.boxes.camera.x, view.boxes.camera.y]"
    x, y = browser.execute_script(place)
    box = browser.find_element("css selector", ".boxes .chosen > rect")
    ActionChains(browser, duration=0).move_to_element(box).click_and_hold().move_by_offset(40, 25).release().perform()
    assert browser.execute_script(place) == pytest.approx([x + 40, y + 25], abs=1)
    settled(browser, CULPRIT)


def test_keys_of_the_outline_work_in_the_boxes(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    press(browser, "o")
    settled(browser, "Torch.op.251.forward")
    press(browser, "c")
    settled(browser, CULPRIT)
    press(browser, "x")
    assert browser.execute_script("return document.activeElement.role") == "tree"


@pytest.mark.parametrize(("width", "shown"), [(1400, [True, True]), (900, [True, False]), (700, [True, False])])
def test_outline_and_boxes_are_shown_where_there_is_room_or_one_of_them(
    look: Callable[..., Any], width: int, shown: list[bool]
) -> None:
    browser = look(300, 10)
    set_width(browser, width)
    try:
        until(browser, lambda: seen(browser) == shown)
        for view, only in (("boxes", [False, True]), ("outline", [True, False])):
            click(browser, f"document.querySelector('[data-view={view}]')")
            assert seen(browser) == only
            browser.refresh()
            assert seen(browser) == only
        browser.find_element("css selector", "#graph .scroller").send_keys("x")
        assert seen(browser) == [shown[1], True]
    finally:
        set_width(browser, 1500)


def test_a_link_leads_to_its_call(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    link = "Module.layers.3.Block.forward.0"
    browser.get(f"{browser.current_url}#{link}")
    settled(browser, link)
    browser.refresh()
    until(browser, lambda: bool(texts(browser, ".boxes .chosen text")))
    settled(browser, link)
    assert "copy link" in texts(browser, "#graph .details .ways button")
    assert browser.execute_script("return view.fragment()") == link


def test_the_outline_is_named_to_those_who_listen(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    described = browser.find_element("css selector", ".boxes").get_attribute("aria-describedby")
    (help_text,) = texts(browser, f"#{described}")
    assert "The outline has the same calls" in help_text
    assert texts(browser, "#graph-boxes [role=status]") == [f"{CULPRIT}, fail"]


def test_it_is_zoomed_and_fitted(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    scale = browser.execute_script("return view.boxes.camera.scale")
    click(browser, "document.querySelector('#graph-boxes .zoom')")
    assert browser.execute_script("return view.boxes.camera.scale") == pytest.approx(1.25 * scale)
    press(browser, "0")
    fits = "const box = view.boxes.drawing.stage.getBoundingClientRect(), all = view.boxes.box.getBoundingClientRect();"
    assert browser.execute_script(f"{fits} return box.bottom <= all.bottom + 1 && box.right <= all.right + 1")
