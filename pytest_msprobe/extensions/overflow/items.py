"""Items and page of a search for overflow: ranks by calls, where inf and nan began, and how they spread."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.communication.jsonl import Step, find_steps
from msprobe_hooks.dump.names import is_communication, is_module_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import home_of
from msprobe_hooks.extensions.overflow.anomaly import (
    AnomalyKind,
    Finding,
    IgnoreRules,
    Level,
    RecordIO,
    ValuePath,
    find_scene,
    is_expected,
    is_ignored,
    is_judgeable,
    is_of_optimizer,
    read_record_io,
)
from msprobe_hooks.messages import counted
from msprobe_standards.verdict import Verdict
from pytest_msprobe.extensions.overflow.nonfinite_origins import (
    RECEIVED,
    Analysis,
    Origin,
    Source,
    analyse,
    describe_values,
    growth_words,
    origin_lines,
    origin_of,
    place_lines,
)
from pytest_msprobe.extensions.overflow.options import overflow_key
from pytest_msprobe.reports.lanes_page import LaneCall, Lanes, write_lanes_page
from pytest_msprobe.reports.page_file import Results
from pytest_msprobe.reports.pages import CHECK, next_steps
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.run.collection import dump_of_id
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.rerun_command import display_path, rerun_step

if TYPE_CHECKING:
    import pytest


class Findings:
    """The analyses of all steps and the origins of records."""

    def __init__(self, dumps: Iterable[Dump], rules: IgnoreRules) -> None:
        self._rules = rules
        self.steps: list[Step] = find_steps(dumps)
        self._places = {
            dump.path: (number, rank) for number, step in enumerate(self.steps) for rank, dump in step.ranks.items()
        }
        self._surroundings: dict[Path, Surroundings] = {}
        self._inside: dict[Path, dict[str, str]] = {}

    @functools.cached_property
    def analyses(self) -> list[Analysis]:
        """Return what came of each step."""
        return [analyse(step, self._rules) for step in self.steps]

    @property
    def by_step(self) -> list[tuple[Step, Analysis]]:
        """Each step with what came of it."""
        return list(zip(self.steps, self.analyses, strict=True))

    def origin(self, dump: Dump, name: str) -> Origin:
        """Return where a record was made."""
        folder = dump.path.parent
        return origin_of(self._surroundings.setdefault(folder, Surroundings(folder)), name)

    def source(self, dump: Dump, name: str) -> Source | None:
        """Return the record of another rank that a communication record's inf or nan came from."""
        analysis, rank = self._analysis(dump)
        return analysis.received.get((rank, name))

    def inside(self, dump: Dump, module: str) -> str | None:
        """Return the first record within a module's call in which inf or nan arises."""
        if dump.path not in self._inside:
            analysis, rank = self._analysis(dump)
            inside = self._inside[dump.path] = {}
            for name in analysis.arising[rank]:
                for around in self.origin(dump, name).modules:
                    inside.setdefault(around, name)
        return self._inside[dump.path].get(module)

    def beginning(self, dump: Dump, name: str) -> Finding | None:
        """Return the finding of a record that only by itself seems to pass on what it shows; None for any other."""
        analysis, rank = self._analysis(dump)
        return analysis.beginnings[rank].get(name)

    def _analysis(self, dump: Dump) -> tuple[Analysis, int]:
        step, rank = self._places[dump.path]
        return self.analyses[step], rank


findings_key = pytest.StashKey[Findings]()


STANDARD = "overflow"

#: The property of an item with its level, or ``ignored``, ``clean`` or ``unknown``.
LEVEL_PROPERTY = "msprobe.overflow"

# The extras of a result: the level, and of a warning what happens, in words.
_LEVEL, _KIND = "overflow_level", "overflow_kind"


def overflow_items(file: pytest.File, dump: Dump) -> Iterator[DumpItem]:
    """Yield an item for each record that has inputs and outputs, in recorded order."""
    for name in dump.records:
        if is_judgeable(name):
            yield OverflowItem.from_parent(file, name=name, dump=dump)


class OverflowItem(DumpItem):
    """One record, of an API or of a module, judged by its statistics alone."""

    def judge(self) -> DirectionResult:
        """Find the record's scene."""
        traffic = read_record_io(self.dump, self.name)
        finding = find_scene(traffic)
        if finding is None:
            return self._clean(traffic)
        if is_ignored(finding, self.name, self.config.stash[overflow_key].rules):
            ignored = Verdict("pass", STANDARD, f"{finding.scene.words}; a rule ignores it")
            return DirectionResult(self.name, ignored).with_extra(_LEVEL, "ignored")
        if is_expected(finding, self.name, self._is_of_optimizer):
            expected = Verdict(
                "pass", STANDARD, f"{finding.scene.words}{growth_words(finding)}, as this function has it"
            )
            return DirectionResult(self.name, expected).with_extra(_LEVEL, "ignored")
        beginning = self.config.stash[findings_key].beginning(self.dump, self.name)
        return self._anomalous(traffic, beginning or finding)

    def _is_of_optimizer(self) -> bool:
        return is_of_optimizer(self.config.stash[findings_key].origin(self.dump, self.name).frames)

    def _clean(self, traffic: RecordIO) -> DirectionResult:
        if traffic.has_statistics:
            return DirectionResult(self.name, Verdict("pass", STANDARD, "no inf or nan")).with_extra(_LEVEL, "clean")
        reason = SkipReason.NO_STATISTICS
        return DirectionResult(self.name, Verdict("skip", "", reason.value), skip=reason)

    def _anomalous(self, traffic: RecordIO, finding: Finding) -> DirectionResult:
        kind, source = self._source(finding)
        level: Level = "high" if source else finding.scene.level
        headline = f"{level}: {kind}{source}{growth_words(finding)}"
        if not self.config.stash[overflow_key].fails(level):
            warned = DirectionResult(self.name, Verdict("warn", STANDARD, headline))
            return warned.with_extra(_LEVEL, level).with_extra(_KIND, kind)
        origin = self.config.stash[findings_key].origin(self.dump, self.name)
        story = [headline, *place_lines(finding.inputs or traffic.inputs), *origin_lines(origin)]
        if finding.scene is AnomalyKind.COMES_IN and self.dump.level == "L0":
            story.append("(level L0 records modules alone: the code between them may have made it; record level mix)")
        verdict = Verdict("fail", STANDARD, "\n".join(story))
        outputs = tuple(_output(place, verdict) for place in finding.outputs)
        return DirectionResult(self.name, verdict, outputs).with_extra(_LEVEL, level)

    def _source(self, finding: Finding) -> tuple[str, str]:
        """Return what happens, in words, and where inf or nan arise if that is another record."""
        findings = self.config.stash[findings_key]
        if finding.scene is AnomalyKind.ARISES and is_communication(self.name):
            source = findings.source(self.dump, self.name)
            if source is not None:
                return RECEIVED, f": rank {source.rank}, {source.name}"
        if finding.scene is AnomalyKind.ARISES and is_module_name(self.name):
            inner = findings.inside(self.dump, self.name)
            if inner is not None:
                return "inf or nan arises within the module", f": {inner}"
        return finding.scene.words, ""

    def properties(self) -> list[tuple[str, str]]:
        """Return the level."""
        return [(LEVEL_PROPERTY, "unknown" if self.result is None else str(self.result.extras.get(_LEVEL, "unknown")))]

    def warning(self, verdict: Verdict) -> str:
        """Return the level and scene: what inf and nan spread to is one warning and not one per record."""
        return f"overflow, {warning_words(self.result.extras) if self.result else verdict.reason}"

    def warned_at(self) -> tuple[str, int]:
        """Return what all warnings of a dump share, so that pytest lists equal ones once."""
        return f"records of {home_of(self.path)}", 0


def warning_words(extras: Mapping[str, Any]) -> str:
    """Return the level and scene of a result that warns, in words; empty for any other result."""
    return f"{extras[_LEVEL]}: {extras[_KIND]}" if _KIND in extras else ""


def level_of(result: DirectionResult) -> str:
    """Return the level of a result, or ``ignored`` or ``clean``; empty where it has none."""
    return str(result.extras.get(_LEVEL, ""))


def _output(place: ValuePath, verdict: Verdict) -> OutputResult:
    leaf = place.leaf
    dtype, shape = getattr(leaf, "dtype", ""), getattr(leaf, "shape", ())
    return OutputResult(place.path, verdict, target_dtype=dtype, shape=shape, difference=describe_values(place))


def write_overflow_page(path: Path, results: Results, *, config: pytest.Config) -> None:
    """Write the page of what came of all records. Raises OSError where the disk refuses."""
    results_by_record = {(dump_of_id(config, item), result.record): result for item, result in results.items()}
    findings = config.stash[findings_key]
    folders = [display_path(config, step.folder) for step in findings.steps]
    dumps = [display_path(config, dump.path) for step in findings.steps for dump in step.ranks.values()]
    lanes = overflow_lanes(findings, folders, results_by_record)
    commands = [rerun_step(config), CHECK, *next_steps()]
    write_lanes_page(path, replace(lanes, dumps=dumps, commands=commands), title="Overflow")


def overflow_lanes(
    findings: Findings, folders: Sequence[str], results: Mapping[tuple[Path, str], DirectionResult]
) -> Lanes:
    """Return the records of each rank and step in recorded order, with what came of them.

    Those of one communication are in one column, so that what is received comes after what was sent.
    """
    several = len(folders) > 1
    lanes: list[str] = []
    calls: list[LaneCall] = []
    places: dict[tuple[int, int, str], int] = {}
    for number, (step, analysis) in enumerate(findings.by_step):
        culprits = {(culprit.rank, culprit.name) for culprit in analysis.culprits}
        names = {rank: [*filter(is_judgeable, dump.records)] for rank, dump in step.ranks.items()}
        columns = aligned_columns(names, analysis.together)
        for rank, dump in step.ranks.items():
            lanes.append(f"{folders[number]}, rank {rank}" if several else f"rank {rank}")
            for name in names[rank]:
                places[number, rank, name] = len(calls)
                result = results.get((dump.path, name))
                column = columns[rank, name]
                calls.append(_call(len(lanes) - 1, column, name, result, (rank, name) in culprits))
    wrong = sum(call.outcome == "fail" for call in calls)
    first = next((call for call in calls if call.begins), None)
    place_of_first = "" if first is None else f", first {first.name}, {lanes[first.lane]}"
    return Lanes(
        title=f"inf or nan arises in {wrong} of {counted(len(calls), 'record')}{place_of_first}",
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


def aligned_columns(
    names: Mapping[int, Sequence[str]], together: Sequence[Sequence[tuple[int, str]]]
) -> dict[tuple[int, str], int]:
    """Return a column for each record by rank and name: ascending on each rank, one for those that are together."""
    columns: dict[tuple[int, str], int] = {}
    records = {rank: frozenset(own) for rank, own in names.items()}
    rest = {rank: iter(own) for rank, own in names.items()}
    reached = dict.fromkeys(names, 0)

    def place_until(rank: int, last: str | None) -> None:
        # Those of the rank before this one, or all, come into the next columns.
        for name in rest[rank]:
            if name == last:
                return
            columns[rank, name] = reached[rank]
            reached[rank] += 1

    for group in together:
        waiting = [(rank, name) for rank, name in group if (rank, name) not in columns and name in records[rank]]
        for rank, name in waiting:
            place_until(rank, name)
        column = max((reached[rank] for rank, _ in waiting), default=0)
        for rank, name in waiting:
            columns[rank, name], reached[rank] = column, column + 1
    for rank in names:
        place_until(rank, None)
    return columns


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
