"""What a broken rule leaves in a result, for the summary and the files: plain data that crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.extensions.monitor.series_names import Place
from pytest_msprobe.results.result import decode_extra

#: The extra of a result that has it.
ALARMED = "monitor"


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """A value that breaks a rule, or leaves what a golden run allows."""

    step: int
    rule: str
    reason: str


class Alarmed(msgspec.Struct, frozen=True):
    """The alarms of one series in the order of steps, the series' place within a step, and what names it."""

    item: str
    rank: int
    task: str
    vpp_stage: int
    name: str
    micro_step: int
    statistic: str
    place: Place
    alarms: list[Alarm]

    @property
    def first(self) -> tuple[int, Place, int]:
        """What sorts series by their first alarm: the step, the order computed, the rank."""
        return self.alarms[0].step, self.place, self.rank


def alarmed_of(extras: Mapping[str, Any]) -> Alarmed | None:
    """Return what a result says of alarms."""
    return decode_extra(extras, ALARMED, Alarmed)
