"""The closing section on the terminal: verdicts, skips by reason, the worst APIs."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any, TypedDict

import pytest

from pytest_msprobe.replay.skips import SkipReason

_WORST_SHOWN = 5


class Environment(TypedDict):
    """What one process ran on: the active card in words, torch's version and its math modes."""

    device: str
    torch: str
    math_modes: list[str]


_OUTCOMES = {"pass": "passed", "warn": "warned", "fail": "failed", "skip": "skipped"}


class Summary:
    """Counts what comes of records as their reports arrive."""

    def __init__(self, module_records: int) -> None:
        self.environments: list[Environment] = []
        self._module_records = module_records
        self._outcomes: Counter[str] = Counter()
        self._skips: Counter[str] = Counter()
        self._worst: list[tuple[float, str, str]] = []

    def add_environment(self, environment: Environment) -> None:
        """Take note of what one process ran on."""
        if environment not in self.environments:
            self.environments.append(environment)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one record."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            self.add(plain)

    def add(self, plain: dict[str, Any]) -> None:
        """Count a result that `to_plain` took apart."""
        verdict = plain["verdict"]
        self._outcomes[verdict["outcome"]] += 1
        if plain["skip"] is not None:
            self._skips[SkipReason(plain["skip"]).value] += 1
        elif verdict["margin"] > 0:
            entry = (verdict["margin"], plain["record"], verdict["standard"])
            (heapq.heappushpop if len(self._worst) >= _WORST_SHOWN else heapq.heappush)(self._worst, entry)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if not self._outcomes:
            return
        terminalreporter.section("msprobe")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return the section's lines."""
        counts = ", ".join(f"{self._outcomes[key]} {word}" for key, word in _OUTCOMES.items() if self._outcomes[key])
        lines = [f"{sum(self._outcomes.values())} API records: {counts}"]
        lines += sorted({f"on {', '.join([of['device'], *of['math_modes']])}" for of in self.environments})
        if self._module_records:
            lines.append(f"{self._module_records} module records are no API calls and were not checked")
        lines += [f"skipped {count}: {reason}" for reason, count in self._skips.most_common()]
        worst = sorted(self._worst, reverse=True)
        if worst:
            lines.append("largest share of what is allowed (over 1 is wrong):")
        lines += [f"  {margin:9.3g}  {record}  ({standard})" for margin, record, standard in worst]
        return lines
