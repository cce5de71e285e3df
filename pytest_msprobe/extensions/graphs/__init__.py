"""Graphs of recorded runs, alone or as two that were compared. Needs the extension overflow.

Command: ``pytest-msprobe graph DUMP [--golden DUMP]``. It writes one HTML page, or the files of msprobe's TensorBoard
viewer (``.vis.db``, ``.vis``). The page of a comparison (``--msprobe-html``) gets its graph from here. It is built from
the records and the files next to them (``construct.json``, ``stack.json``); overflow says which scenes to ignore.

It enters by ``pytest_msprobe_register_comparisons``, as what draws the graphs of a page; without it, pages have none.
Take it out by deleting this folder and tests/extensions/graphs.

Importing its modules loads msgspec, pytest and yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry, PageGraphs


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add what draws the graphs of the page of a comparison."""
    registry.set_drawing(_page_graphs)


def _page_graphs(pairs: Sequence[DumpPair]) -> PageGraphs:
    from pytest_msprobe.extensions.graphs.graph_page import read_graphs

    return read_graphs(pairs)


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``graph``."""
    from pytest_msprobe.commands.registry import RECORDED, Command

    registry.add(
        RECORDED,
        "graph",
        Command(
            "draw one or two recorded runs as a graph",
            "dump.json --golden golden/dump.json --html graph.html",
            "tools.md",
            f"{__name__}.graph_command",
        ),
    )
