"""The graph of a page, looked at in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.graphs.data_flow import Edge
from pytest_msprobe.extensions.graphs.graph_page import Drawing, Run, drawn, read_graphs, write_single_page
from pytest_msprobe.extensions.graphs.nodes import Graph, Kind, Node
from pytest_msprobe.modes.compare.reports.html import write_html
from pytest_msprobe.reports.pages import write_page
from tests.support.browser.chromium import click, texts, until
from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor_around, value, write_dump

pytestmark = pytest.mark.slow

BLOCK, INNER = "Module.block.Block.forward.0", "Module.block.fc.Linear.forward.0"
LINEAR, RELU, TANH = (f"{name}.0.forward" for name in ("Functional.linear", "Functional.relu", "Torch.tanh"))
HEAD, BACK = "Module.head.Head.forward.0", "Module.head.Head.backward.0"
PARENTS = {BLOCK: None, INNER: BLOCK, LINEAR: INNER, RELU: BLOCK, TANH: HEAD, "Torch.tanh.0.backward": BACK}
DOWN, LEFT, RIGHT, ENTER = "\ue015", "\ue012", "\ue014", "\ue007"


def call(given: float, returns: float) -> Json:
    return forward(tensor_around(2, 3, at=given), output=[tensor_around(2, 3, at=returns)])


def records(wrong: float = 0.0) -> Json:
    """Return a block of a linear layer and an activation, and a call after it; the layer may be wrong."""
    return {
        LINEAR: call(1.0, 2.0 + wrong),
        INNER: call(1.0, 2.0 + wrong),
        RELU: call(2.0 + wrong, 3.0 + wrong),
        BLOCK: call(1.0, 3.0 + wrong),
        TANH: call(3.0 + wrong, 4.0 + wrong),
        "Torch.tanh.0.backward": {"input": [tensor_around(2, 3, at=7.0)], "output": [tensor_around(2, 3, at=8.0)]},
    }


@pytest.fixture
def compared(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Compare two runs, write their page and look at its graph."""

    def look(target: Json, golden: Json, parents: Json = PARENTS) -> Any:
        runs = Runs(tmp_path)
        for side in ("target", "golden"):
            (tmp_path / side).mkdir()
            runs.construct(side, parents)
        pair = runs.pair(target, golden)
        calls = [pair.compare(name) for name in pair.orders]
        graphs = read_graphs([pair])
        write_html(tmp_path / "page.html", calls, title="two runs", about="", pairs=["rank0"], graphs=graphs)
        return opened(browser, tmp_path / "page.html", "views.show('graph')")

    return look


@pytest.fixture
def single(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write the page of runs that are ranks of one step, and open it."""

    def look(*ranks: Json, parents: Json = PARENTS) -> Any:
        folders = [tmp_path / f"rank{rank}" for rank in range(len(ranks))]
        paths = [write_dump(folder, one, parents=parents) for folder, one in zip(folders, ranks, strict=True)]
        write_single_page(tmp_path / "page.html", [read_dump(path) for path in paths], title="a run")
        return opened(browser, tmp_path / "page.html")

    return look


def opened(browser: Any, path: Path, script: str = "") -> Any:
    browser.get_log("browser")
    browser.get(path.as_uri())
    browser.execute_script(script)
    return browser


def rows(browser: Any) -> list[str]:
    """Return the labels of the rows in sight, from the top."""
    return texts(browser, "#graph .scroller .name")


def run_shown(browser: Any) -> str:
    found: str = browser.execute_script("return document.querySelector('#graph select').selectedOptions[0].text")
    return found


def chosen(browser: Any) -> str:
    (name,) = texts(browser, "#graph .details h2")
    return name


def press(browser: Any, *keys: str) -> None:
    browser.find_element("css selector", "#graph .scroller").send_keys(*keys)


def test_the_way_to_the_culprit_is_open_and_its_failure_is_reported(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    assert rows(browser) == ["block", "fc", "linear", "relu", "head", "head"]
    assert chosen(browser) == LINEAR
    assert texts(browser, "#graph .scroller .chosen .badge") == ["culprit"]
    assert "output.0: scaled error" in texts(browser, "#graph .details pre")[0]
    assert browser.get_log("browser") == []


def test_values_are_followed_from_call_to_call(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    press(browser, "o")
    assert chosen(browser) == RELU
    press(browser, "o")
    assert chosen(browser) == TANH
    assert texts(browser, "#graph .details li") == [f"input.0 {RELU} output.0"]
    until(browser, lambda: len(browser.find_elements("css selector", ".boxes .edge.given[transform]")) == 1)
    press(browser, "i", "i")
    assert chosen(browser) == LINEAR


def test_a_closed_block_has_the_values_that_enter_and_leave_it(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    click(browser, "document.querySelector('#graph .call .fold')")
    assert rows(browser) == ["block", "head", "head"]
    assert texts(browser, "#graph .scroller .call:first-of-type .badge.fail") == ["3 wrong inside"]
    assert texts(browser, "#graph .details li") == [f"relu output.0 {TANH} input.0"]


def test_keys_go_through_the_tree_the_failures_and_both_runs(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    press(browser, LEFT, LEFT)
    assert rows(browser) == ["block", "fc", "relu", "head", "head"]
    press(browser, RIGHT, RIGHT)
    assert chosen(browser) == LINEAR
    press(browser, "n")
    assert chosen(browser) == RELU
    press(browser, "g")
    assert chosen(browser) == RELU
    assert run_shown(browser) == "golden"
    press(browser, "g", DOWN, RIGHT, DOWN, "b")
    assert chosen(browser) == "Torch.tanh.0.backward"


def test_a_key_right_after_the_other_run_is_shown_is_followed(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    until(browser, lambda: bool(browser.execute_script("return graphView.boxes.layout")))
    browser.execute_script(
        "for (const key of ['g', 'ArrowDown'])"
        "  graphView.boxes.box.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));"
    )
    assert run_shown(browser) == "golden"
    assert chosen(browser) == RELU
    assert browser.get_log("browser") == []


def test_the_same_call_is_shown_in_the_run_that_is_chosen_from_the_list(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    browser.find_element("css selector", "#graph select").send_keys("golden")
    assert [run_shown(browser), chosen(browser)] == ["golden", LINEAR]
    assert texts(browser, "#graph .details .ways button")[0] == "target's call (g)"


def test_the_search_leads_to_what_is_closed(compared: Callable[..., Any]) -> None:
    browser = compared(records(), records())
    assert rows(browser) == ["block", "head", "head"]
    browser.find_element("css selector", "#graph input").send_keys("FORWARD linear", ENTER, ENTER)
    assert texts(browser, "#graph .bar [role=status]") == ["2 of 2 found"]
    assert chosen(browser) == LINEAR


def test_table_and_graph_lead_to_each_other(compared: Callable[..., Any]) -> None:
    browser = compared(records(wrong=0.5), records())
    click(browser, "[...document.querySelectorAll('#graph .details .ways button')].at(-1)")
    assert texts(browser, "#details h2") == [f"{LINEAR}.output.0"]
    click(browser, "document.querySelector('#details button')")
    assert chosen(browser) == LINEAR


def test_a_communication_leads_to_the_next_rank(single: Callable[..., Any]) -> None:
    name = "Distributed.all_reduce.0.forward"
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "a"}
    rank = {name: {**call(1.0, 2.0), "input_kwargs": {"group": group, "src": value(0)}}}
    browser = single(rank, rank, parents={name: None})
    press(browser, "r")
    assert run_shown(browser) == "rank 1"
    assert chosen(browser) == name


def test_a_link_leads_to_a_call_of_a_rank(single: Callable[..., Any]) -> None:
    browser = single(records(), records())
    browser.get(f"{browser.current_url}#rank%201::{RELU}")
    until(browser, lambda: chosen(browser) == RELU)
    assert browser.execute_script("return [view.place, view.fragment()]") == [1, f"rank 1::{RELU}"]
    browser.get(f"{browser.current_url.split('#')[0]}#rank%207::{RELU}")
    assert browser.execute_script("return view.place") == 1


def test_the_rank_in_which_nan_arises_is_shown_first(single: Callable[..., Any]) -> None:
    name, nan = "Distributed.all_reduce.0.forward", float("nan")
    sends = {RELU: call(2.0, nan), name: call(nan, nan)}
    browser = single({RELU: call(2.0, 1.0), name: call(1.0, nan)}, sends, parents={RELU: None, name: None})
    assert run_shown(browser) == "rank 1"
    assert chosen(browser) == RELU


def test_a_run_alone_shows_where_nan_arises(single: Callable[..., Any]) -> None:
    nan = float("nan")
    browser = single(records() | {RELU: call(2.0, nan), BLOCK: call(1.0, nan), TANH: call(nan, nan)})
    assert chosen(browser) == RELU
    assert texts(browser, "h1") == [f"inf or nan arises in 1 call, first {RELU}"]
    failure, check, *_ = texts(browser, "#graph .details pre")
    assert failure == "inf or nan in the output and none in the input"
    assert check.startswith("pytest --msprobe-dump=")
    assert check.endswith(f"dump.json::{RELU}")
    assert texts(browser, "#graph .details dd")[1].endswith("norm nan")
    assert texts(browser, "#graph .scroller .fail .name") == ["block", "relu"]


@pytest.mark.parametrize(
    "name", ["</script><script>document.title='taken'</script>", "<img src=x onerror=alert(1)>", "<!--", "__proto__"]
)
def test_a_hostile_name_is_text(single: Callable[..., Any], name: str) -> None:
    browser = single({f"{name}.0.forward": call(1.0, 2.0), RELU: call(2.0, 3.0)}, parents={f"{name}.0.forward": name})
    # What is no module is collected with what follows it.
    press(browser, RIGHT, RIGHT, RIGHT)
    assert chosen(browser) == f"{name}.0.forward"
    assert texts(browser, "#graph .details li") == [f"output.0 {RELU} input.0"]
    assert browser.title == "inf or nan arises in no call"
    assert browser.get_log("browser") == []


def test_fifty_thousand_calls_stay_usable_and_fit_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    count = 50_000
    calls = [f"Torch.op.{place}.forward" for place in range(count)]
    blocks = [f"Module.layers.{place}.Block.forward.0" for place in range(count // 100)]
    nodes = {"root": Node("root", Kind.MODULE, children=blocks)}
    for place, block in enumerate(blocks):
        inside = calls[100 * place : 100 * place + 100]
        nodes[block] = Node(block, Kind.MODULE, "root", inside)
        nodes |= {name: Node(name, Kind.API, block) for name in inside}
    edges = [Edge(before, "output.0", after, "input.0") for before, after in pairwise(calls)]
    run = Run(Graph("root", nodes), edges, {name: place for place, name in enumerate(nodes)})
    data = {"title": "", "about": "", "calls": [], "graphs": drawn([Drawing("", run, {})])}
    write_page(
        tmp_path / "page.html",
        "pytest_msprobe.extensions.graphs",
        data,
        title="Recorded run",
        parts=("dagre", "graph"),
    )
    opened(browser, tmp_path / "page.html").set_window_size(400, 800)
    click(browser, "[...document.querySelectorAll('#graph .bar button')].find((one) => one.textContent === 'open all')")
    browser.execute_script("document.querySelector('#graph .scroller').scrollTop = 1e9")
    until(browser, lambda: texts(browser, "#graph .scroller .about")[-1:] == [f"Torch {count - 1}"])
    assert len(browser.find_elements("css selector", "#graph-outline *")) < 500
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 500
    browser.set_window_size(1500, 900)
