"""Overflowing forward records as items that are replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msprobe_hooks.dump.anomalies.anomaly import find_scene, may_hold_non_finite, read_record_io
from msprobe_hooks.dump.anomalies.ignore_rules import IgnoreRules, is_ignored
from msprobe_hooks.dump.names import is_forward_api
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.overflow.items import LEVEL_PROPERTY
from pytest_msprobe.extensions.overflow.options import overflow_key
from pytest_msprobe.modes.check.checker import checker_of
from pytest_msprobe.modes.check.items import RecordItem
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.options import options_key

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump

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
        wanted = self.config.stash[options_key].real_data == "auto"
        return wanted and all(tensor.data_name is not None for tensor in tensors)

    def properties(self) -> list[tuple[str, str]]:
        """Return the device, the seed and whether the overflow is normal."""
        level = _LEVELS[self.result.verdict.outcome] if self.result else "not replayed"
        return [*super().properties(), (LEVEL_PROPERTY, level)]
