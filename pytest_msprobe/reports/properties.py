"""What JUnit's properties tell of a result, in a run and in a report made of its journal."""

from __future__ import annotations

from pytest_msprobe.results.result import DirectionResult


def verdict_properties(result: DirectionResult) -> list[tuple[str, str]]:
    """Return what JUnit shows of a verdict, or of what kept an item from one."""
    verdict, breakdown = result.verdict, result.breakdown
    return [
        ("msprobe.verdict", verdict.outcome),
        ("msprobe.standard", verdict.standard),
        *([("msprobe.breakdown", breakdown.value)] if breakdown is not None else []),
        ("msprobe.margin", f"{verdict.margin:.6g}"),
    ]
