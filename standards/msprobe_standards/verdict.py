"""The verdict on one output: what was measured, what was allowed, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["pass", "warn", "fail", "skip"]

# An order alone: a failure leads, and nothing judged yields to anything judged.
_SEVERITY: dict[Outcome, int] = {"skip": 0, "pass": 1, "warn": 2, "fail": 3}

# A choice: a product that is rounded once uses 0.65 of its floor. See docs/standards-reference.md, "Where the constants
# come from".
_MOST_GUESSED = 0.75


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a standard on one output.

    Args:
        outcome: ``pass``, ``warn``, ``fail`` or ``skip``.
        standard: The name of the standard.
        reason: One sentence for people, empty where there is nothing to say.
        metrics: The measured numbers by name.
        limits: The limits under the same names.
        margin: The largest share of a limit that was used up: 0.0 is exact, 1.0 is on the limit, ``inf`` means that no
            limit applies (a wrong shape, a NaN where a number belongs).
        at_most: Whether the margin is an upper bound: the verdict passed by a lower limit than the one that would
            decide, which was not computed.
    """

    outcome: Outcome
    standard: str
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    margin: float = 0.0
    at_most: bool = False


def is_rough(verdict: Verdict) -> bool:
    """Return whether a margin is an upper bound that is worth measuring: the limit that decides may be much higher."""
    return verdict.at_most and verdict.margin > _MOST_GUESSED


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the verdict that decides for all: fail before warn before pass before skip, then the largest margin.

    Args:
        verdicts: The verdicts, in any order.

    Returns:
        The first of the worst ones; None where there are none.
    """
    return max(verdicts, key=lambda verdict: (_SEVERITY[verdict.outcome], verdict.margin), default=None)
