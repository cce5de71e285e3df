"""Graphs of dumps that a test writes."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.graphs.nodes import Graph, build_graph
from tests.support.dumps.dump_files import Json, forward, tensor, write_dump

CALL = forward(tensor(2))


def graph_of(folder: Path, parents: Json, records: Json | None = None, **files: Json) -> Graph:
    """Return the graph of a run whose calls and modules have these parents; ``records`` are calls by default."""
    records = dict.fromkeys(parents, CALL) if records is None else records
    path = write_dump(folder, records, parents=parents, level="mix", **files)
    return build_graph(read_dump(path), Surroundings(folder))
