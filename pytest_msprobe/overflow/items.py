"""Records as items that fail where inf or nan arises."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.item import DumpItem
from pytest_msprobe.options import options_key, record_argument
from pytest_msprobe.overflow.communication import is_communication
from pytest_msprobe.overflow.culprits import Source
from pytest_msprobe.overflow.findings import findings_key
from pytest_msprobe.overflow.ignore import is_ignored
from pytest_msprobe.overflow.options import overflow_key
from pytest_msprobe.overflow.scenes import Finding, Place, Scene, Traffic, find_scene, is_judgeable, read_traffic
from pytest_msprobe.overflow.words import describe_finding, describe_values, origin_lines, place_lines
from pytest_msprobe.replay.skips import SkipReason
from pytest_msprobe.results import DirectionResult, OutputResult

if TYPE_CHECKING:
    from msprobe_hooks.reader import Dump
    from pytest_msprobe.collection import DumpFile

STANDARD = "overflow"

_RECEIVED = "inf or nan received from another rank"

#: The property of an item that tells its level: ``critical``, ``high``, ``medium``, ``ignored`` or ``clean``.
LEVEL_PROPERTY = "msprobe.overflow"


def overflow_items(file: DumpFile, dump: Dump) -> Iterator[DumpItem]:
    """Yield an item for each record that has inputs and outputs, in recorded order, or for each one to replay."""
    if file.config.stash[overflow_key].replay:
        from pytest_msprobe.overflow.replay_items import replayed_items

        yield from replayed_items(file, dump)
        return
    for name in dump.records:
        if is_judgeable(name):
            yield OverflowItem.from_parent(file, name=name, dump=dump)


class OverflowItem(DumpItem):
    """One record, of an API or of a module, judged by its statistics alone."""

    _level = "clean"
    _grouped = ""

    def judge(self) -> DirectionResult:
        """Find the record's scene."""
        options = self.config.stash[overflow_key]
        traffic = read_traffic(self.dump, self.name)
        finding = find_scene(traffic)
        if finding is None:
            if not traffic.has_statistics:
                reason = SkipReason.NO_STATISTICS
                return DirectionResult(self.name, Verdict("skip", "", reason.value), skip=reason)
            return DirectionResult(self.name, Verdict("pass", STANDARD, "no inf or nan"))
        if is_ignored(finding, self.name, options.rules):
            self._level = "ignored"
            return DirectionResult(
                self.name, Verdict("pass", STANDARD, f"{finding.scene.words}, where a rule ignores it")
            )
        source = self._source(finding)
        level = "high" if source is not None else finding.scene.level
        self._level = level
        outcome: Outcome = "fail" if options.fails(level) else "warn"
        if outcome == "warn":
            self._grouped = f"{level}: {finding.scene.words if source is None else _RECEIVED}"
            return DirectionResult(self.name, Verdict(outcome, STANDARD, _headline(finding, source)))
        verdict = Verdict(outcome, STANDARD, "\n".join(self._story(traffic, finding, source)))
        return DirectionResult(self.name, verdict, tuple(_output(place, verdict) for place in finding.outputs))

    def _source(self, finding: Finding) -> Source | None:
        if finding.scene is not Scene.ARISES or not is_communication(self.name):
            return None
        return self.config.stash[findings_key].source(self.dump, self.name)

    def _story(self, traffic: Traffic, finding: Finding, source: Source | None) -> Iterator[str]:
        yield _headline(finding, source)
        yield from place_lines(finding.inputs or traffic.inputs)
        yield from origin_lines(self.config.stash[findings_key].origin(self.dump, self.name))

    def properties(self) -> list[tuple[str, str]]:
        """Return the level."""
        return [(LEVEL_PROPERTY, self._level)]

    def warning(self, verdict: Verdict) -> str:
        """Return the level and scene: what inf and nan spread to is one warning and not one per record."""
        return f"overflow, {self._grouped}"

    def _rerun(self) -> str:
        options = self.config.stash[options_key]
        words = ["pytest", record_argument(options, self.path, self.name), *self.config.stash[overflow_key].flags()]
        return shlex.join(words)


def _headline(finding: Finding, source: Source | None) -> str:
    if source is None:
        return describe_finding(finding)
    return f"high: {_RECEIVED}: rank {source.rank}, {source.name}"


def _output(place: Place, verdict: Verdict) -> OutputResult:
    leaf = place.leaf
    dtype, shape = getattr(leaf, "dtype", ""), getattr(leaf, "shape", ())
    return OutputResult(place.path, verdict, target_dtype=dtype, shape=shape, difference=describe_values(place))
