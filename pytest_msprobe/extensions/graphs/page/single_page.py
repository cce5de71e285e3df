"""The page of recorded runs alone: the graph of each rank and step, coloured where inf and nan arise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.anomalies.anomaly import AnomalyKind, RecordIO, find_scene, read_record_io
from msprobe_hooks.dump.anomalies.ignore_rules import BUILT_IN, is_ignored
from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_hooks.dump.names import is_communication, is_parameters_grad
from msprobe_hooks.dump.paths.recording import step_rank
from msprobe_hooks.dump.paths.stages import stages_of
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import Leaf, TensorElement
from msprobe_hooks.errors import RecordError
from pytest_msprobe.extensions.graphs.page.links import communication_links
from pytest_msprobe.extensions.graphs.page.payload import Drawing, Mark, Run, drawn, read_run
from pytest_msprobe.reports.pages.write_page import page_number, write_page

#: How a scene is coloured, as a search for overflow judges it, and whether what is wrong begins there. A norm that
#: jumps is no error of itself.
_MARKS = {
    AnomalyKind.ARISES: ("fail", "culprit"),
    AnomalyKind.OVERWRITTEN: ("fail", "culprit"),
    AnomalyKind.PASSES_ON: ("warn", "inherited"),
    AnomalyKind.VANISHES: ("warn", ""),
}
_RECEIVED = "another rank may have sent them"
_STATISTICS = ("max", "min", "mean", "norm")


def write_single_page(path: Path, dumps: Sequence[Dump], *, title: str) -> None:
    """Write the page. Raises DumpError where a dump has no graph, OSError where the disk refuses."""
    calls: list[Any] = []
    runs = [read_run(dump) for dump in dumps]
    marks = [_marks(dump, run, calls) for dump, run in zip(dumps, runs, strict=True)]
    stages = stages_of([dump.path for dump in dumps])
    drawings = [
        Drawing(_place(dump, stages[dump.path]), run, found, links=links)
        for dump, run, found, links in zip(dumps, runs, marks, communication_links(dumps), strict=True)
    ]
    nodes, edges = sum(len(run.order) for run in runs), sum(len(run.edges) for run in runs)
    about = f"{nodes} modules and calls, {edges} values passed between them"
    data = {"title": title, "about": about, "calls": calls, "graphs": drawn(drawings)}
    write_page(path, __package__, data, title="Recorded run", parts=("dagre", "graph"))


def _place(dump: Dump, stage: str) -> str:
    place = step_rank(dump.path)
    words = dump.path.parent.name if place == (None, None) else str(place)
    return f"stage {stage}, {words}" if stage else words


def _marks(dump: Dump, run: Run, calls: list[Any]) -> Mapping[str, Mark]:
    """Return the mark of each record, and add what the page says of it to ``calls``."""
    stacks = dump.surroundings.stacks
    marks: dict[str, Mark] = {}
    for name in run.order:
        if name not in dump.records or is_parameters_grad(name):
            continue
        outcome, cause, text, values = _judged(dump, name)
        marks[name] = Mark(outcome, cause, len(calls))
        calls.append([text, values, "\n".join(outside_frameworks(stacks.of_call(name) or ()))])
    # Where a call in a module is wrong of itself, the module is not.
    for name in [name for name, mark in marks.items() if mark.cause == "culprit"]:
        for module in run.graph.path(name)[:-1]:
            if module in marks:
                marks[module] = marks[module]._replace(cause="inherited")
    return marks


def _judged(dump: Dump, name: str) -> tuple[str, str, str, list[Any]]:
    """Return the outcome and cause of a record, what is wrong with it in words, and its values."""
    try:
        traffic = read_record_io(dump, name)
    except RecordError as error:
        return "skip", "", str(error), []
    finding, values = find_scene(traffic), list(_values(traffic))
    if finding is None or finding.scene not in _MARKS or is_ignored(finding, name, BUILT_IN):
        return "", "", "", values
    if finding.scene is AnomalyKind.ARISES and is_communication(name):
        return "warn", "inherited", f"{finding.scene.words}; {_RECEIVED}", values
    return *_MARKS[finding.scene], finding.scene.words, values


def _values(traffic: RecordIO) -> Iterator[list[Any]]:
    """Yield place, what it is, and the four statistics of each value."""
    for place in (*traffic.inputs, *traffic.outputs):
        leaf: Leaf = place.leaf
        if isinstance(leaf, TensorElement):
            yield [
                place.path, f"{leaf.dtype.removeprefix('torch.')} {list(leaf.shape)}",
                *(page_number(getattr(leaf, name)) for name in _STATISTICS),
            ]  # fmt: skip
        else:
            yield [place.path, f"{leaf.type} {leaf.value}"]
