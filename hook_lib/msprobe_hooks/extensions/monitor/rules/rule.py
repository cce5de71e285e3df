"""What a rule is, for a training process that has one value after the other and for a whole series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

#: What a limit may be, and a number of recorded steps.
Limit = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Detector(Protocol):
    """A rule at work on one series."""

    def feed(self, value: float) -> str | None:
        """Take the next value; return what is wrong with it and what was allowed, None where nothing is."""


class Rule(Protocol):
    """What a series must keep to."""

    #: What policies and reports call it.
    name: ClassVar[str]

    def detector(self) -> Detector:
        """Return what watches one series, from its first value on."""

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Return whether a detector would find any of the values wrong."""


def alarms(rule: Rule, values: NDArray[np.float64]) -> Iterator[tuple[int, str]]:
    """Yield the index of each value that breaks a rule, with what is wrong; a series that keeps it costs little."""
    if rule.is_broken(values):
        detector = rule.detector()
        for index, value in enumerate(values.tolist()):
            reason = detector.feed(value)
            if reason is not None:
                yield index, reason
