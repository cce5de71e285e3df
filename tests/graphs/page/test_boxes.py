"""The boxes and edges of a graph, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.graphs.data_flow import Edge
from pytest_msprobe.graphs.nodes import Graph, Kind, Node
from pytest_msprobe.graphs.page.payload import Drawing, Mark, Run, drawn
from pytest_msprobe.reports.pages.write_page import write_page
from tests.support.browser import click, open_browser, texts, until

pytestmark = pytest.mark.slow

UP, DOWN, RIGHT, ENTER, ESCAPE = "\ue013", "\ue015", "\ue014", "\ue007", "\ue00c"
CULPRIT = "Torch.op.250.forward"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as driver:
        yield driver


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Callable[..., Any]:
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
        write_page(tmp_path / "page.html", "pytest_msprobe.graphs.page", data, title="Sample", parts=("dagre", "graph"))
        browser.get_log("browser")
        browser.get((tmp_path / "page.html").as_uri())
        until(browser, lambda: bool(texts(browser, ".boxes .chosen text")))
        return browser

    return open_page


def chosen(browser: Any) -> str:
    (name,) = texts(browser, "#graph .details h2")
    return name


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", ".boxes").send_keys(*keys)


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
    edges = browser.execute_script("return view.boxes.drawn.edges.map((edge) => [edge.from, edge.to])")
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


def test_of_a_module_of_many_calls_some_are_drawn_and_the_rest_is_one_box(look: Callable[..., Any]) -> None:
    browser = look(100_000, 50_000, culprit="Torch.op.20000.forward")
    settled(browser, "Torch.op.20000.forward")
    others = texts(browser, ".boxes .others text")
    assert others == ["19970 more calls before", "29970 more calls after"]
    assert len(browser.find_elements("css selector", ".boxes *")) < 1000
    browser.execute_script(
        "document.querySelectorAll('.boxes .others rect')[1].dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    assert texts(browser, ".boxes .others text") == ["20030 more calls before", "29910 more calls after"]


def test_it_is_zoomed_and_fitted(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    click(browser, "document.querySelector('.boxes .zoom button')")
    assert browser.execute_script("return view.boxes.camera.scale") == 1.25
    press(browser, "0")
    fits = "const box = view.boxes.stage.getBoundingClientRect(), all = view.boxes.box.getBoundingClientRect();"
    assert browser.execute_script(f"{fits} return box.bottom <= all.bottom + 1 && box.right <= all.right + 1")
