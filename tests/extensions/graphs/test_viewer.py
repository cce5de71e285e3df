"""msprobe's own viewer reads the graph files, as a user that is not root."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from tests.support.browser.chromium import open_browser
from tests.support.browser.viewer import Opened, Viewer, open_viewer
from tests.support.dumps.dump_files import Json, forward, tensor, tensor_around, value, write_dump

pytestmark = pytest.mark.slow

MODEL, ADD, MUL, LOG = "Module.net.Net.forward.0", "Torch.add.0.forward", "Torch.mul.0.forward", "Torch.log.0.forward"
EXP, REDUCE = "Torch.exp.0.forward", "Distributed.all_reduce.0.forward"
HOSTILE = 'Module.<img src=x onerror=document.title="hacked">.Net.forward.0'
FRAME = "File train.py, line 3, in forward, \n y = a + b"
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}
PASS, WARNING, ERROR, UNMATCHED = [0.0, 0.3], [0.3, 0.6], [0.6, 1.1], -1


def calls(at: float) -> Json:
    return {
        MODEL: forward(tensor_around(2)),
        ADD: forward(tensor_around(2), output=[tensor_around(2, at=at)]),
        MUL: forward(tensor_around(2), value("<b>bold</b>")),
        REDUCE: forward(tensor_around(2), group=GROUP),
        HOSTILE: forward(tensor_around(2)),
    }


PARENTS = {MODEL: None, ADD: MODEL, MUL: MODEL, REDUCE: None, HOSTILE: None}


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    dumps, folder = tmp_path_factory.mktemp("dumps"), tmp_path_factory.mktemp("graphs")
    only = {
        "target": {LOG: forward(tensor(2), output=[tensor(2, low="-Infinity")])},
        "golden": {EXP: forward(tensor(2), output=[tensor(2)])},
    }
    for rank in (0, 1):
        for side, at in (("target", 2.0), ("golden", 1.0)):
            found = calls(at) | only[side]
            where = dumps / side / "step3" / f"rank{rank}"
            write_dump(where, found, parents=PARENTS | dict.fromkeys(only[side]), level="mix", stacks={ADD: [FRAME]})
    golden = ("--golden", str(dumps / "golden"))
    for name, words in (
        ("changed", golden), ("two_runs", golden), ("two_runs_json", (*golden, "--format", "json")),
        ("one_run", ("--overflow",)), ("one_run_json", ("--overflow", "--format", "json")),
    ):  # fmt: skip
        assert main(["graph", str(dumps / "target"), *words, "-o", str(folder / name)]) == 0
    with open_viewer(folder) as running:
        yield running


def two_runs(viewer: Viewer, form: str, rank: int = 0) -> Opened:
    if form == "db":
        return viewer.open("two_runs", rank=rank, step=3)
    tags: list[str] = viewer.runs()["two_runs_json"]["tags"]
    return viewer.open("two_runs_json", next(tag for tag in tags if f"rank{rank}" in tag))


def test_it_finds_one_database_and_a_file_per_rank_of_json(viewer: Viewer) -> None:
    assert {run: (found["type"], len(found["tags"])) for run, found in viewer.runs().items()} == {
        "changed": ("db", 1), "two_runs": ("db", 1), "two_runs_json": ("json", 2), "one_run": ("db", 1),
        "one_run_json": ("json", 2),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["db", "json"])
class TestTwoRuns:
    def test_it_draws_the_tree_of_either_side(self, viewer: Viewer, form: str) -> None:
        opened = two_runs(viewer, form)
        for side in ("NPU", "Bench"):
            assert set(opened.expand("root", side)) >= {"DefaultModel", MODEL, REDUCE, HOSTILE}
            drawn = opened.expand(MODEL, side)
            assert drawn[ADD]["parentNode"] == MODEL
            assert drawn[ADD]["matchedNodeLink"] == ["DefaultModel", MODEL, ADD]

    def test_it_colours_by_verdict(self, viewer: Viewer, form: str) -> None:
        opened = two_runs(viewer, form)
        opened.expand("root")
        drawn = opened.expand(MODEL)
        assert (drawn[ADD]["precisionIndex"], drawn[MUL]["precisionIndex"]) == (1.0, 0.0)
        assert opened.filter("precision", [ERROR]) == [ADD]
        assert set(opened.filter("precision", [PASS])) == {MUL, REDUCE, HOSTILE}
        assert opened.filter("precision", [WARNING]) == []
        assert opened.filter("precision", [UNMATCHED]) == [LOG]

    def test_it_shows_the_values_of_both_and_the_call_stack(self, viewer: Viewer, form: str) -> None:
        reported = two_runs(viewer, form).node(ADD)
        output = reported["npu"]["output_data"][f"{ADD}.output.0"]
        assert (output["Max"], output["Max diff"], output["Result"]) == ("2.0", "1.0", "error")
        assert reported["bench"]["output_data"][f"{ADD}.output.0"]["Max"] == "1.0"
        assert reported["npu"]["stack_info"] == [FRAME]

    def test_it_searches_the_names_of_both(self, viewer: Viewer, form: str) -> None:
        found = two_runs(viewer, form).ask("loadGraphAllNodeList")
        assert set(found["npuNodeList"]) >= {MODEL, ADD, MUL, REDUCE, HOSTILE, LOG}
        assert found["npuMatchNodes"][ADD] == ADD
        assert LOG in found["npuUnMatchNodes"]

    def test_it_jumps_to_the_partner_of_a_communication(self, viewer: Viewer, form: str) -> None:
        for rank, other in ((0, 1), (1, 0)):
            drawn = two_runs(viewer, form, rank).expand("root")
            partner = drawn[REDUCE]["matchedDistributed"]
            assert partner == {"communications_type": "send_receive", "nodes_info": {str(other): ["0.0", REDUCE]}}


@pytest.mark.parametrize("run", ["one_run", "one_run_json"])
def test_it_draws_the_tree_of_a_single_run(viewer: Viewer, run: str) -> None:
    opened = viewer.open(run, step=3)
    assert MODEL in opened.expand("root", "Single")
    assert ADD in opened.expand(MODEL, "Single")


def test_it_filters_a_single_run_by_level_of_overflow(viewer: Viewer) -> None:
    # Of the JSON form it finds nothing, in msprobe's own files either: it looks for the nodes one level too deep.
    opened = viewer.open("one_run", step=3)
    assert opened.filter("overflow", ["critical"]) == [LOG]
    assert opened.filter("overflow", ["medium", "high"]) == []


class TestWhatItWrites:
    """The viewer keeps what its user changes in the file."""

    def test_two_nodes_without_partner_are_matched_by_hand(self, viewer: Viewer) -> None:
        opened = viewer.open("changed", step=3)
        opened.ask("loadGraphAllNodeList")
        opened.ask("addMatchNodes", npuNodeName=LOG, benchNodeName=EXP, isMatchChildren=False)
        reported = opened.node(LOG)
        assert reported["npu"]["matched_node_link"] == [EXP]
        assert reported["npu"]["output_data"][f"{LOG}.output.0"]["MaxRelativeErr"] == "0.0000%"

    def test_colours_are_edited(self, viewer: Viewer) -> None:
        opened = viewer.open("changed", step=3, rank=1)
        colours = opened.ask("loadGraphConfigInfo")["colors"]
        colours = {colour: one | {"value": one["value"] or "N/A"} for colour, one in colours.items()}
        opened.ask("updateColors", colors=json.dumps(colours))

    def test_precision_is_counted_anew_from_the_relative_errors(self, viewer: Viewer) -> None:
        opened = viewer.open("changed", step=3, rank=1)
        opened.expand("root")
        opened.ask("updatePrecisionError", filterValue=["0"])
        assert opened.filter("precision", [ERROR]) == [ADD]


def test_the_page_shows_names_as_text(viewer: Viewer) -> None:
    with open_browser() as browser:
        browser.get(viewer.page)
        deadline = time.monotonic() + 300
        while not any("img src=x" in text for text in _labels(browser)):
            assert time.monotonic() < deadline, _labels(browser)
            time.sleep(0.2)
        assert browser.title != "hacked"


def _labels(browser: Any) -> list[str]:
    script = """
        const found = [], walk = (root) => { for (const one of root.querySelectorAll("*")) {
            if (one.tagName === "text") found.push(one.textContent);
            if (one.shadowRoot) walk(one.shadowRoot);
        } };
        walk(document);
        return found;
    """
    labels: list[str] = browser.execute_script(script)
    return labels
