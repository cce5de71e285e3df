"""First culprits at the end of a search for inf and nan, and the items that replay overflowing calls."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.communication.jsonl import Step
from msprobe_hooks.dump.names import is_forward_api
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.values import NON_FINITE
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.overflow.anomaly import (
    LEVELS,
    IgnoreRules,
    find_scene,
    is_ignored,
    is_judgeable,
    may_hold_non_finite,
    read_record_io,
)
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.overflow.items import LEVEL_PROPERTY, Findings, findings_key, warning_words
from pytest_msprobe.extensions.overflow.nonfinite_origins import (
    Analysis,
    Culprit,
    describe_finding,
    origin_lines,
    place_lines,
)
from pytest_msprobe.extensions.overflow.options import overflow_key
from pytest_msprobe.modes.check.items import RecordItem, checker_of
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.header import files_in_one_line, kinds_of
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.shared_options import JSON
from pytest_msprobe.storage.files import atomic_write

if TYPE_CHECKING:
    import pytest


_LEVELS = {"pass": "normal", "fail": "abnormal", "warn": "not reproduced", "skip": "not replayed"}


def replayed_items(file: pytest.File, dump: Dump) -> Iterator[DumpItem]:
    """Yield an item for each forward call whose recorded output holds inf or nan, in recorded order."""
    rules = file.config.stash[overflow_key].rules
    for name in dump.api_names:
        if is_forward_api(name) and may_hold_non_finite(bytes(dump.records[name])) and _overflows(dump, name, rules):
            yield OverflowReplayItem.from_parent(file, name=name, dump=dump)


def _overflows(dump: Dump, name: str, rules: IgnoreRules) -> bool:
    try:
        finding = find_scene(read_record_io(dump, name))
    except DumpError:
        return True  # It fails as an item, with what is wrong.
    return (
        finding is not None
        and bool(finding.outputs)
        and finding.growth is None
        and not is_ignored(finding, name, rules)
    )


class OverflowReplayItem(RecordItem):
    """An overflowing forward call, replayed on the device and on the CPU."""

    def judge(self) -> DirectionResult:
        """Replay the call on both and compare."""
        from pytest_msprobe.extensions.overflow.replay_judge import overflow_judge

        judge = overflow_judge(recorded_tensors=self._has_recorded_tensors())
        return checker_of(self.config).check(self.dump, self.name, judge)

    def _has_recorded_tensors(self) -> bool:
        tensors = [
            place.leaf for place in read_record_io(self.dump, self.name).inputs if isinstance(place.leaf, TensorElement)
        ]
        uses_recorded = self.config.stash[options_key].real_data == "auto"
        return uses_recorded and all(tensor.data_name is not None for tensor in tensors)

    def properties(self) -> list[tuple[str, str]]:
        """Return the device, the seed and whether the overflow is normal."""
        level = _LEVELS[self.result.verdict.outcome] if self.result else "not replayed"
        return [*super().properties(), (LEVEL_PROPERTY, level)]


_INPUTS_AND_OUTPUTS = ("input_args", "input_kwargs", "input", "output")


def write_anomalies(folder: Path, step: Step, analysis: Analysis, findings: Findings) -> Path:
    """Write the culprits of one step by rank to a folder and return the file. Raises OSError."""
    ranks: dict[str, list[dict[str, Any]]] = {}
    for culprit in analysis.culprits:
        ranks.setdefault(f"rank_{culprit.rank}", []).append(_entry(step, culprit, findings))
    path = folder / f"anomaly_analyze_{time.time_ns()}.json"
    # Python's own JSON, because msprobe's readers expect bare NaN and Infinity.
    with atomic_write(path) as part:
        part.write_text(json.dumps(ranks, indent=2), encoding="utf-8")
    return path


def _entry(step: Step, culprit: Culprit, findings: Findings) -> dict[str, Any]:
    dump = step.ranks[culprit.rank]
    body = dump.body(culprit.name)
    origin = findings.origin(dump, culprit.name)
    return {
        "op_name": culprit.name,
        "data_info": {key: _as_numbers(body[key]) for key in _INPUTS_AND_OUTPUTS if key in body},
        "construct_info": [*origin.modules, culprit.name],
        "stack_info": list(origin.frames) or {},
    }


def _as_numbers(tree: Any) -> Any:
    """Restore the numbers that the reader turned into the strings that JSON allows."""
    if isinstance(tree, dict):
        return {key: _as_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_as_numbers(value) for value in tree]
    return NON_FINITE.get(tree, tree) if isinstance(tree, str) else tree


_MALFORMED_SHOWN = 5
_OTHERS_SHOWN = 7


def header_lines(config: pytest.Config) -> list[str]:
    """Return what fails, what is ignored, and the dumps."""
    options = config.stash[overflow_key]
    lines = [f"msprobe: overflow, failing from severity {options.level}"]
    if options.replay:
        lines = ["msprobe: overflow, replaying the overflowing calls"]
    if options.ignore is not None:
        lines.append(f"msprobe: ignore rules of {options.ignore}, in addition to the built-in ones")
    dumps = [dump for step in config.stash[findings_key].steps for dump in step.ranks.values()]
    counts = [(sum(len(dump.records) for dump in dumps), "record")]
    return [*lines, files_in_one_line(config, [dump.path for dump in dumps], "ranks", counts, kinds_of(dumps))]


class OverflowReport:
    """Counts levels as reports arrive, and in the end names the first culprits."""

    def __init__(self, config: pytest.Config) -> None:
        self._findings = config.stash[findings_key]
        self._options = config.stash[overflow_key]
        self._levels: Counter[str] = Counter()
        # By what happens, in words: the first record that warns of it, and how many do.
        self._warned: dict[str, tuple[str, int]] = {}
        # By the file and the name of a record: those whose failure is shown above the section.
        self._shown: set[tuple[Path, str]] = set()
        self._shows_failures = config.getoption("tbstyle", "auto") not in ("no", "line")
        self._root = config.rootpath
        self._written: list[Path] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one record."""
        if report.failed and self._shows_failures:
            path, _, name = report.nodeid.partition("::")
            self._shown.add((self._root / path, name))
        if report.when == "call":
            self._levels.update(str(value) for name, value in report.user_properties if name == LEVEL_PROPERTY)
            plain = getattr(report, "msprobe", None)
            if plain is not None and plain["verdict"]["outcome"] == "warn":
                words = warning_words(plain["extras"]) or plain["verdict"]["reason"]
                first, count = self._warned.get(words, (plain["record"], 0))
                self._warned[words] = first, count + 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write msprobe's file, if it is wanted."""
        folder = self._options.json
        if folder is not None and not session.config.option.collectonly:
            try:
                self._written = [
                    write_anomalies(folder, step, analysis, self._findings)
                    for step, analysis in self._findings.by_step
                    if analysis.culprits
                ]
            except OSError as error:
                self._problem = f"{JSON}: {cannot_be_written(folder, error)}"
                end_as_incomplete(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section, first culprits first."""
        if terminalreporter.config.option.collectonly:
            return
        terminalreporter.section("msprobe overflow")
        for line in self.lines():
            terminalreporter.line(one_line(line))
        if self._problem:
            terminalreporter.line(one_line(f"ERROR: {self._problem}"), red=True)

    def lines(self) -> Iterator[str]:
        """Yield the section's lines."""
        steps_with_culprits = [(step, analysis) for step, analysis in self._findings.by_step if analysis.culprits]
        for step, analysis in steps_with_culprits[:1]:
            yield from self._culprit_lines(step, analysis)
        for step, analysis in steps_with_culprits[1:]:
            first = analysis.culprits[0]
            yield f"also in {step.folder}: rank {first.rank}, {first.name}"
        if not steps_with_culprits:
            yield "inf or nan arises in no record"
        if self._levels:
            order = dict.fromkeys((*LEVELS, "ignored", "clean", *self._levels))
            counts = [f"{self._levels[level]} {level}" for level in order if self._levels[level]]
            yield f"{'replayed' if self._options.replay else 'levels'}: {', '.join(counts)}"
        for words, (record, count) in self._warned.items():
            yield f"warned: {record}{f' (and {count - 1} more)' if count > 1 else ''}: {words}"
        yield from self._left_out_lines()
        for path in self._written:
            yield f"first culprits are also in {path}"

    def _culprit_lines(self, step: Step, analysis: Analysis) -> Iterator[str]:
        first, *others = analysis.culprits
        yield f"first culprit: rank {first.rank}, {first.name}, {first.phase.value}"
        for line in self._details(step, first):
            yield f"  {line}"
        for other in others[:_OTHERS_SHOWN]:
            yield f"at the same time: rank {other.rank}, {other.name}"
        if len(others) > _OTHERS_SHOWN:
            yield f"and on {len(others) - _OTHERS_SHOWN} more ranks"

    def _details(self, step: Step, culprit: Culprit) -> Iterator[str]:
        dump = step.ranks[culprit.rank]
        finding = culprit.finding
        yield f"{dump.path}"
        is_shown = (dump.path, culprit.name) in self._shown
        if is_shown:
            yield f"{describe_finding(finding)}; details in its failure above"
        else:
            yield describe_finding(finding)
            yield from place_lines(finding.outputs)
            yield from place_lines(read_record_io(dump, culprit.name).inputs)
        if culprit.missing:
            ranks = ", ".join(map(str, culprit.missing))
            yield f"it may have received them: rank {ranks} took part, without a matching record in these dumps"
        if not is_shown:
            yield from origin_lines(self._findings.origin(dump, culprit.name))

    def _left_out_lines(self) -> Iterator[str]:
        malformed = [
            f"{step.ranks[rank].path}::{name}"
            for step, analysis in self._findings.by_step
            for rank, name in analysis.malformed
        ]
        yield from (f"left out as malformed: {place}" for place in malformed[:_MALFORMED_SHOWN])
        if len(malformed) > _MALFORMED_SHOWN:
            yield f"and {len(malformed) - _MALFORMED_SHOWN} more"
        dumps = (dump for step in self._findings.steps for dump in step.ranks.values())
        gradients = sum(not is_judgeable(name) for dump in dumps for name in dump.records)
        if gradients:
            yield f"{counted(gradients, 'record')} of parameters' gradients not judged: no inputs to compare with"
