"""Records as items that fail where inf or nan arises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msprobe_hooks.dump.anomalies.anomaly import (
    AnomalyKind,
    Finding,
    Level,
    RecordIO,
    ValuePath,
    find_scene,
    is_judgeable,
    read_record_io,
)
from msprobe_hooks.dump.anomalies.expected_growth import is_expected, is_of_optimizer
from msprobe_hooks.dump.anomalies.ignore_rules import is_ignored
from msprobe_hooks.dump.names import is_communication, is_module_name
from msprobe_hooks.dump.paths.recording import home_of
from msprobe_standards.verdict import Verdict
from pytest_msprobe.extensions.overflow.analysis import findings_key
from pytest_msprobe.extensions.overflow.messages import describe_values, growth_words, origin_lines, place_lines
from pytest_msprobe.extensions.overflow.options import overflow_key
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.results.skip_reasons import SkipReason
from pytest_msprobe.run.item import DumpItem

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump

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
        return self._anomalous(traffic, finding)

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
        verdict = Verdict("fail", STANDARD, "\n".join(story))
        outputs = tuple(_output(place, verdict) for place in finding.outputs)
        return DirectionResult(self.name, verdict, outputs).with_extra(_LEVEL, level)

    def _source(self, finding: Finding) -> tuple[str, str]:
        """Return what happens, in words, and where inf or nan arise if that is another record."""
        findings = self.config.stash[findings_key]
        if finding.scene is AnomalyKind.ARISES and is_communication(self.name):
            source = findings.source(self.dump, self.name)
            if source is not None:
                return "inf or nan received from another rank", f": rank {source.rank}, {source.name}"
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
