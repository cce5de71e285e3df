"""How an item can end: with a verdict, or without one."""

from __future__ import annotations

from enum import Enum


class Breakdown(Enum):
    """Why an item failed before there was anything to measure; the value is what reports call it."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    ERROR = "error"
    RUN = "run"
    RECORD = "record"
    POLICY = "policy"
    BASELINE = "baseline"
    TEST = "test"

    @property
    def did_not_end(self) -> bool:
        """Whether the item never came to its end; such an item has an outcome of its own."""
        return self in _DID_NOT_END

    @property
    def may_break_device(self) -> bool:
        """Whether the device may be unusable after it."""
        return self in (Breakdown.RUN, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)


_DID_NOT_END = (Breakdown.CRASH, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)

#: The outcomes of items that did not end.
UNFINISHED = tuple(kind.value for kind in _DID_NOT_END)

#: What may come of an item: a verdict's outcomes, and those of items that did not end.
OUTCOMES = ("pass", "warn", "fail", "skip", *UNFINISHED)
