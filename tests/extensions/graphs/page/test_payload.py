"""A run's graph as the data of a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.graphs.graph_page import Drawing, Mark, Run, drawn, read_run
from tests.support.dumps.dump_files import Json, forward, tensor_around, write_dump

BLOCK, ONE, TWO = "Module.block.Block.forward.0", "Torch.relu.0.forward", "Torch.tanh.0.forward"


def call(given: float, returns: float) -> Json:
    return forward(tensor_around(2, at=given), output=[tensor_around(2, at=returns)])


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Read the graph of a run: a call in a block, and one after it."""

    def read(name: str = "run") -> Run:
        records = {ONE: call(1, 2), BLOCK: call(1, 2), TWO: call(2, 3)}
        return read_run(read_dump(write_dump(tmp_path / name, records, level="mix", parents={ONE: BLOCK, TWO: None})))

    return read


def side(drawing: Drawing) -> dict[str, Any]:
    found: dict[str, Any] = drawn([drawing])[0]["target"]
    return found


def test_parents_stand_before_what_is_in_them(run: Callable[..., Run]) -> None:
    found = side(Drawing("", run(), {}))
    assert found["names"][1:] == [BLOCK, ONE, TWO]
    assert found["parents"] == [-1, 0, 1, 0]
    assert found["kinds"] == "mmaa"


def test_a_mark_is_a_letter_at_the_place_of_its_node(run: Callable[..., Run]) -> None:
    found = side(Drawing("", run(), {ONE: Mark("fail", "culprit", 7), BLOCK: Mark("fail", "inherited", 8)}))
    assert (found["outcomes"], found["causes"], found["calls"]) == (" ff ", " ic ", [-1, 8, 7, -1])


def test_an_edge_is_five_numbers(run: Callable[..., Run]) -> None:
    found = side(Drawing("", run(), {}))
    assert found["edges"] == [2, 0, 3, 1, 0]
    assert found["places"] == ["output.0", "input.0"]


def test_partners_and_links_are_places_of_nodes(run: Callable[..., Run]) -> None:
    target, golden = run(), run("golden")
    drawing = Drawing("rank0", target, {}, golden, {}, {ONE: TWO}, links=[(ONE, 1, TWO), ("gone", 1, TWO)])
    found = drawn([drawing, Drawing("rank1", run("other"), {})])[0]
    assert found["partners"] == [-1, -1, 3, -1]
    assert found["links"] == [[2, 1, 3]]
