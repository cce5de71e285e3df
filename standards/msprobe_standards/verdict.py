"""The verdict on one output: what was measured, what was allowed, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["pass", "warn", "fail", "skip"]

_SEVERITY: dict[Outcome, int] = {"skip": 0, "pass": 1, "warn": 2, "fail": 3}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a standard says of one output.

    ``reason`` is one sentence for people. ``metrics`` are the numbers that were measured and ``limits`` the
    ones that were allowed, under the same names; both are pure numbers. ``margin`` is the largest share of a
    limit that was used up: 0.0 is exact, 1.0 sits on the limit, ``inf`` has no limit to be compared with
    (a wrong shape, a NaN where a number belongs).
    """

    outcome: Outcome
    standard: str
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    margin: float = 0.0


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the verdict that decides for all: fail before warn before pass before skip, then the largest margin."""
    return max(verdicts, key=lambda verdict: (_SEVERITY[verdict.outcome], verdict.margin), default=None)
