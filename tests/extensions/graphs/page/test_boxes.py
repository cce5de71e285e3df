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

PANES = ("outline", "boxes", "details")
UP, DOWN, RIGHT, ENTER, ESCAPE = "\ue013", "\ue015", "\ue014", "\ue007", "\ue00c"
CULPRIT = "Torch.op.250.forward"
LONG = f"Torch.{'a_long_name_' * 10}end.0.forward"


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Write the page of a chain of calls in blocks, of which one call is the culprit, and open it."""

    def open_page(calls: int, inside: int, culprit: str = CULPRIT, outcome: str = "fail") -> Any:
        names = [f"Torch.op.{place}.forward" for place in range(calls)]
        names = names if culprit in names else [*names[:-1], culprit]
        blocks = [f"Module.layers.{place}.Block.forward.0" for place in range(-(-calls // inside))]
        nodes = {"root": Node("root", Kind.MODULE, children=blocks)}
        for place, block in enumerate(blocks):
            own = names[inside * place : inside * place + inside]
            nodes[block] = Node(block, Kind.MODULE, "root", own)
            nodes |= {name: Node(name, Kind.API, block) for name in own}
        edges = [Edge(before, "output.0", after, "input.0") for before, after in pairwise(names)]
        run = Run(Graph("root", nodes), edges, {name: place for place, name in enumerate(nodes)})
        graphs = drawn([Drawing("", run, {culprit: Mark(outcome, "culprit")})])
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
        until(browser, lambda: bool(texts(browser, ".boxes .chosen .name")))
        return browser

    with served(tmp_path) as address:
        yield open_page


def chosen(browser: Any) -> str:
    (name,) = texts(browser, "#graph .details h2")
    return name


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", ".boxes").send_keys(*keys)


def titles(browser: Any, selector: str) -> list[str]:
    """Return the full names of what a selector finds among the boxes."""
    # In one script: boxes are drawn anew as others are opened.
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.title)"
    found: list[str] = browser.execute_script(script, f".boxes {selector}")
    return found


def others(browser: Any) -> list[str]:
    """Return what boxes of several calls say, without what is wrong in them."""
    return texts(browser, ".boxes .others :is(.name, .about)")


def click_box(browser: Any, selector: str, times: int = 1) -> None:
    """Click the first element of a selector in the drawing with the mouse, a number of times quickly."""
    from selenium.webdriver import ActionChains

    box = browser.find_element("css selector", selector)
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center', inline: 'center' })", box)
    mouse = ActionChains(browser, duration=0).move_to_element(box)
    (mouse.double_click() if times == 2 else mouse.click()).perform()


def seen(browser: Any) -> list[bool]:
    """Return whether outline, boxes and details are shown, none of them folded."""
    boxes = ("#graph .scroller", "#graph .boxes", "#graph .details")
    return [browser.find_element("css selector", box).is_displayed() for box in boxes]


def settled(browser: Any, name: str) -> None:
    """Wait until this is chosen in the outline and drawn so in the boxes."""
    until(browser, lambda: titles(browser, ".chosen") == [name])
    assert chosen(browser) == name


def test_the_culprit_is_in_its_open_module_among_closed_ones(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    settled(browser, CULPRIT)
    assert titles(browser, ".module") == ["Module.layers.25.Block.forward.0"]
    assert len(titles(browser, ".call[title^=Module]:not(.module)")) == 29
    assert len(titles(browser, ".call[title^=Torch]")) == 10
    assert titles(browser, ".call:has(.badge.culprit)") == [CULPRIT]
    assert browser.get_log("browser") == []


def test_boxes_do_not_overlap_and_edges_join_them(look: Callable[..., Any]) -> None:
    browser = look(30, 5, culprit="Torch.op.7.forward")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.boxes .call:not(.module)')].map((one) => one.getBoundingClientRect())"
        ".map(({ left, top, right, bottom }) => [left, top, right, bottom])"
    )
    overlapping = [
        (one, other)
        for place, one in enumerate(boxes)
        for other in boxes[place + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]
    assert overlapping == []
    heads = browser.find_elements("css selector", ".boxes .edge[transform]")
    assert len(heads) == len(boxes) - 1


def test_keys_follow_the_values_open_and_go_out(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    press(browser, DOWN)
    settled(browser, "Torch.op.251.forward")
    press(browser, UP)
    settled(browser, CULPRIT)
    press(browser, ESCAPE)
    settled(browser, "Module.layers.25.Block.forward.0")
    press(browser, ENTER)
    until(browser, lambda: titles(browser, ".module") == [])
    press(browser, RIGHT)
    settled(browser, "Module.layers.26.Block.forward.0")


def test_what_is_chosen_in_the_outline_is_so_in_the_boxes_and_the_other_way_round(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    click(
        browser,
        "[...document.querySelectorAll('#graph .call')].find((one) => one.title.startsWith('Module.layers.24.'))",
    )
    settled(browser, "Module.layers.24.Block.forward.0")
    click_box(browser, ".boxes [title^='Module.layers.23.']")
    settled(browser, "Module.layers.23.Block.forward.0")


def test_of_a_module_of_many_calls_those_that_are_alike_are_one_box(look: Callable[..., Any]) -> None:
    browser = look(100_000, 50_000, culprit="Torch.op.20000.forward")
    settled(browser, "Torch.op.20000.forward")
    assert others(browser) == ["op", "20000 alike", "op", "29999 alike"]
    assert len(titles(browser, ".call:not(.module)")) == 4


def test_calls_that_are_alike_are_spread_in_ranges(look: Callable[..., Any]) -> None:
    browser = look(100_000, 50_000, culprit="Torch.op.20000.forward")
    click_box(browser, ".boxes .others")
    settled(browser, "Torch.op.0.forward")
    assert others(browser) == ["calls 61 to 50000", "of 50000"]
    assert texts(browser, ".boxes .others .badge") == ["1 wrong inside"]
    click_box(browser, ".boxes .others")
    settled(browser, "Torch.op.60.forward")
    assert others(browser) == ["calls 1 to 60", "of 50000", "calls 121 to 50000", "of 50000"]
    assert texts(browser, ".boxes .others .badge") == ["1 wrong inside"]
    assert len(browser.find_elements("css selector", ".boxes *")) < 1000
    click_box(browser, ".boxes .others")
    settled(browser, "Torch.op.59.forward")


def test_what_differs_inside_is_not_alike(look: Callable[..., Any]) -> None:
    browser = look(800, 10, culprit="Torch.op.250.forward")
    assert others(browser) == ["layers.0 to layers.24", "25 alike", "layers.26 to layers.79", "54 alike"]
    press(browser, ESCAPE, RIGHT)
    settled(browser, "Module.layers.26.Block.forward.0")
    press(browser, *[RIGHT] * 40)
    settled(browser, "Module.layers.66.Block.forward.0")


def test_a_module_is_opened_by_its_sign_and_by_two_clicks(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    first = "Module.layers.0.Block.forward.0"
    box = f".boxes [title='{first}']"
    click_box(browser, f"{box} .fold")
    settled(browser, first)
    until(browser, lambda: first in titles(browser, ".module"))
    click_box(browser, f"{box} .name", 2)
    until(browser, lambda: first not in titles(browser, ".module"))
    click_box(browser, f"{box} .name", 2)
    until(browser, lambda: first in titles(browser, ".module"))


def test_what_is_open_in_the_boxes_is_so_in_the_outline(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    first = "Module.layers.0.Block.forward.0"
    click_box(browser, f".boxes [title='{first}'] .fold")
    until(browser, lambda: first in titles(browser, ".module"))
    assert browser.find_element("css selector", f".scroller [title='{first}']").get_attribute("aria-expanded") == "true"
    click(browser, f"document.querySelector(\".scroller [title='{first}'] .fold\")")
    until(browser, lambda: first not in titles(browser, ".module"))


def test_where_too_much_is_open_the_way_to_the_chosen_call_is_drawn(look: Callable[..., Any]) -> None:
    browser = look(3_000, 50)
    click(browser, "[...document.querySelectorAll('#graph .bar button')].find((one) => one.textContent === 'open all')")
    until(browser, lambda: texts(browser, ".said") == [f"{CULPRIT}, fail, drawn with what is around it"])
    settled(browser, CULPRIT)
    assert titles(browser, ".module") == ["Module.layers.5.Block.forward.0"]
    assert len(titles(browser, ".call")) == 60 + 50
    click_box(browser, ".boxes [title='Module.layers.9.Block.forward.0'] .fold")
    settled(browser, "Module.layers.9.Block.forward.0")
    assert titles(browser, ".module") == ["Module.layers.9.Block.forward.0"]


def test_a_culprit_that_warns_is_amber_in_outline_and_boxes(look: Callable[..., Any]) -> None:
    browser = look(30, 5, culprit="Torch.op.7.forward", outcome="warn")
    amber = browser.execute_script("return getComputedStyle(document.querySelector('#graph .bar .warn')).color")
    for place in (".scroller", ".boxes"):
        badge = browser.find_element("css selector", f"{place} .badge.culprit")
        colour = browser.execute_script("return getComputedStyle(arguments[0]).backgroundColor", badge)
        assert colour == amber


def test_a_long_name_is_cut_in_front(look: Callable[..., Any]) -> None:
    browser = look(30, 5, culprit=LONG)
    for place in (".scroller", ".boxes"):
        seen_at_the_end = browser.execute_script(
            "const name = document.querySelector(`${arguments[0]} .chosen .name`), box = name.getBoundingClientRect();"
            "const text = name.firstChild.firstChild, last = document.createRange();"
            "last.setStart(text, text.length - 1); last.setEnd(text, text.length);"
            "const end = last.getBoundingClientRect();"
            "return name.scrollWidth > name.clientWidth && end.left >= box.left && end.right <= box.right + 1",
            place,
        )
        assert seen_at_the_end


def test_a_drag_moves_the_drawing_and_chooses_nothing(look: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    browser = look(300, 10, culprit=LONG)
    press(browser, *"+++++")
    box = browser.find_element("css selector", ".boxes [title='Torch.op.297.forward']")
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center', inline: 'center' })", box)
    place = "const { left, top } = arguments[0].getBoundingClientRect(); return [left, top]"
    x, y = browser.execute_script(place, box)
    mouse = ActionChains(browser, duration=0).move_to_element(box).click_and_hold()
    mouse.move_by_offset(30, 15).move_by_offset(10, 10).release().perform()
    assert browser.execute_script(place, box) == pytest.approx([x + 40, y + 25], abs=1)
    settled(browser, LONG)


def test_keys_of_the_outline_work_in_the_boxes(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    press(browser, "o")
    settled(browser, "Torch.op.251.forward")
    press(browser, "c")
    settled(browser, CULPRIT)
    press(browser, "x")
    assert browser.execute_script("return document.activeElement.role") == "tree"


@pytest.mark.parametrize("width", [1400, 900, 700])
def test_outline_boxes_and_details_are_shown_at_every_width_and_the_outline_can_be_folded(
    look: Callable[..., Any], width: int
) -> None:
    browser = look(300, 10)
    set_width(browser, width)
    try:
        until(browser, lambda: seen(browser) == [True, True, True])
        boxes, outline = (browser.find_element("id", f"graph-{name}").size["width"] for name in ("boxes", "outline"))
        assert width == 1400 or outline == boxes
        rooms = [browser.find_element("id", f"graph-{name}").size for name in PANES]
        assert all(room["width"] >= 280 and room["height"] >= 200 for room in rooms)
        click(browser, "document.querySelector('#graph-outline .fold')")
        browser.refresh()
        until(browser, lambda: bool(titles(browser, ".chosen")))
        assert seen(browser) == [False, True, True]
        press(browser, "x")
        assert seen(browser) == [True, True, True]
        assert browser.execute_script("return document.activeElement.role") == "tree"
    finally:
        set_width(browser, 1500)


def test_a_link_leads_to_its_call(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    link = "Module.layers.3.Block.forward.0"
    browser.get(f"{browser.current_url}#{link}")
    settled(browser, link)
    browser.refresh()
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
    width = "return document.querySelector('.boxes .chosen').getBoundingClientRect().width"
    first = browser.execute_script(width)
    click(browser, "document.querySelector('#graph-boxes .zoom')")
    assert browser.execute_script(width) == pytest.approx(1.25 * first, rel=0.02)
    settled(browser, CULPRIT)
    press(browser, "0")
    fits = "const { scrollWidth, clientWidth, scrollHeight, clientHeight } = document.querySelector('.boxes');"
    assert browser.execute_script(f"{fits} return scrollWidth <= clientWidth && scrollHeight <= clientHeight")


@pytest.mark.parametrize("drawn_at", [0.4, 0.6, 1.3])
def test_no_name_is_cut_by_a_zoom(look: Callable[..., Any], drawn_at: float) -> None:
    browser = look(300, 10)
    zoom = "view.boxes.zoom(arguments[0] / view.boxes.scale);"
    browser.execute_script(f"{zoom} view.boxes.layout = null; view.draw()", drawn_at)
    until(browser, lambda: bool(browser.execute_script("return view.boxes.layout")))
    names = "return [...document.querySelectorAll('.boxes .name')]"
    cut = f"{names}.filter((one) => one.scrollWidth > one.clientWidth).length"
    assert [browser.execute_script(f"{zoom} {cut}", scale) for scale in (0.4, 0.6, 1, 1.3)] == [0, 0, 0, 0]


def test_paper_has_all_boxes(look: Callable[..., Any]) -> None:
    browser = look(30, 5, culprit=LONG)
    browser.execute_script("view.boxes.zoom(3); window.dispatchEvent(new Event('beforeprint'))")
    width = "return document.querySelector('.boxes .stage').getBoundingClientRect().width"
    assert browser.execute_script(width) <= 681
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(width) > 681


def test_the_slash_leads_to_the_search_from_anywhere(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    browser.execute_script("document.activeElement.blur()")
    browser.find_element("css selector", "body").send_keys("/")
    assert browser.execute_script("return document.activeElement === view.bar.search")
    assert browser.execute_script("return view.bar.search.value") == ""


def test_the_wheel_zooms_with_ctrl_alone(look: Callable[..., Any]) -> None:
    browser = look(300, 10)
    width = "return document.querySelector('.boxes .chosen').getBoundingClientRect().width"
    turn = (
        "document.querySelector('.boxes').dispatchEvent(new WheelEvent('wheel', { deltaY: -1, ctrlKey: arguments[0] }))"
    )
    first = browser.execute_script(width)
    browser.execute_script(turn, False)
    assert browser.execute_script(width) == first
    browser.execute_script(turn, True)
    assert browser.execute_script(width) == pytest.approx(1.1 * first, rel=0.02)
