"""The page of a search for overflow: ranks by calls, where inf and nan began, and how they spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from msprobe_hooks.dump.anomalies.anomaly import is_judgeable
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.overflow.analysis import Findings, findings_key
from pytest_msprobe.extensions.overflow.items import level_of
from pytest_msprobe.reports.lanes_page.html import LaneCall, Lanes, write_lanes_page
from pytest_msprobe.reports.page_report import Results
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.collection import dump_of_id
from pytest_msprobe.run.options import display_path


def write_overflow_page(path: Path, results: Results, *, config: pytest.Config) -> None:
    """Write the page of what came of all records. Raises OSError where the disk refuses."""
    found = {(dump_of_id(config, item), result.record): result for item, result in results.items()}
    findings = config.stash[findings_key]
    folders = [display_path(config, step.folder) for step in findings.steps]
    write_lanes_page(path, overflow_lanes(findings, folders, found), title="Overflow")


def overflow_lanes(
    findings: Findings, folders: Sequence[str], results: Mapping[tuple[Path, str], DirectionResult]
) -> Lanes:
    """Return the records of each rank and step in recorded order, with what came of them."""
    several = len(folders) > 1
    lanes: list[str] = []
    calls: list[LaneCall] = []
    places: dict[tuple[int, int, str], int] = {}
    for number, (step, analysis) in enumerate(findings.by_step):
        culprits = {(culprit.rank, culprit.name) for culprit in analysis.culprits}
        for rank, dump in step.ranks.items():
            lanes.append(f"{folders[number]}, rank {rank}" if several else f"rank {rank}")
            for column, name in enumerate(filter(is_judgeable, dump.records)):
                places[number, rank, name] = len(calls)
                result = results.get((dump.path, name))
                calls.append(_call(len(lanes) - 1, column, name, result, (rank, name) in culprits))
    wrong = sum(call.outcome == "fail" for call in calls)
    return Lanes(
        title=f"inf or nan arises in {wrong} of {counted(len(calls), 'record')}",
        about=", ".join(
            [
                *folders[:1],
                *([f"{len(folders)} steps"] if several else []),
                counted(len({rank for step in findings.steps for rank in step.ranks}), "rank"),
            ]
        ),
        lanes=lanes,
        calls=calls,
        notes=list(_notes(findings, folders)),
        arrows=list(_arrows(findings, places)),
        kind_title="Level",
    )


def _call(lane: int, column: int, name: str, result: DirectionResult | None, begins: bool) -> LaneCall:
    if result is None:
        return LaneCall(lane, column, name, "", begins=begins)
    why, _, story = result.verdict.reason.partition("\n")
    details = [("What was found", story)] if story else []
    details += [(output.path, output.difference) for output in result.outputs if output.difference]
    # Most records are clean: that is said by their level.
    shown = "" if result.outcome == "pass" and level_of(result) == "clean" else why
    return LaneCall(lane, column, name, result.outcome, level_of(result), shown, tuple(details), begins)


def _notes(findings: Findings, folders: Sequence[str]) -> Iterator[str]:
    for folder, (_, analysis) in zip(folders, findings.by_step, strict=True):
        for culprit in analysis.culprits[:1]:
            place = f"in {folder}, " if len(folders) > 1 else ""
            yield f"first culprit: {place}rank {culprit.rank}, {culprit.name}, {culprit.phase.value}"


def _arrows(findings: Findings, places: Mapping[tuple[int, int, str], int]) -> Iterator[tuple[int, int]]:
    """Yield what went from rank to rank: the record that gave inf or nan, and the one that took them."""
    for number, analysis in enumerate(findings.analyses):
        for (rank, name), source in analysis.received.items():
            giver, taker = places.get((number, source.rank, source.name)), places.get((number, rank, name))
            if giver is not None and taker is not None:
                yield giver, taker
