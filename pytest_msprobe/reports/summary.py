"""The closing section on the terminal: verdicts, skips by reason, the worst APIs."""

from __future__ import annotations

import heapq
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_msprobe.journal.file import BREAKDOWNS
from pytest_msprobe.results.result import Start
from pytest_msprobe.results.skips import SkipReason
from pytest_msprobe.storage.sizes import format_size

_WORST_SHOWN = 5


_OUTCOMES = {"pass": "passed", "warn": "warned", "fail": "failed", "skip": "skipped"}


class Summary:
    """Counts what comes of records as their reports arrive."""

    def __init__(self, module_records: int, kind: str = "API records") -> None:
        self.settled_before: Counter[str] = Counter()
        self._starts: dict[str, None] = {}
        self._kind = kind
        self._module_records = module_records
        self._outcomes: Counter[str] = Counter()
        self._breakdowns: Counter[str] = Counter()
        self._skips: Counter[str] = Counter()
        self._worst: list[tuple[float, str, str]] = []
        self._saved: Counter[str] = Counter()
        self._saved_bytes = 0
        self._explored: list[int] = []
        self._tensors_unused: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one record."""
        started, plain = getattr(report, "msprobe_start", None), getattr(report, "msprobe", None)
        if started is not None:
            self._starts[str(msgspec.convert(started, Start))] = None
        if plain is not None:
            self.add(plain)

    def add(self, plain: dict[str, Any]) -> None:
        """Count a result that `to_plain` took apart."""
        verdict = plain["verdict"]
        self._outcomes[verdict["outcome"]] += 1
        if plain["explored"] >= 0:
            self._explored.append(plain["explored"])
        if plain["tensors_unused"]:
            self._tensors_unused.append(plain["tensors_unused"])
        for saved in plain["saved"]:
            self._count_saved(saved)
        if verdict["outcome"] == "fail" and verdict["standard"] in BREAKDOWNS:
            self._breakdowns[verdict["standard"]] += 1
        if plain["skip"] is not None:
            self._skips[SkipReason(plain["skip"]).value] += 1
        elif verdict["margin"] > 0:
            entry = (verdict["margin"], plain["record"], verdict["standard"])
            (heapq.heappushpop if len(self._worst) >= _WORST_SHOWN else heapq.heappush)(self._worst, entry)

    def _count_saved(self, saved: dict[str, Any]) -> None:
        self._saved_bytes += saved["size"]
        if saved["problem"]:
            self._saved[f"not saved: {saved['problem']}"] += 1
            return
        left_out = f" without {', '.join(saved['left_out'])}: no room" if saved["left_out"] else ""
        self._saved[f"saved in {Path(saved['folder']).parent}{left_out}"] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if not (self._outcomes or self.settled_before):
            return
        terminalreporter.section("msprobe")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> list[str]:
        """Return the section's lines."""
        lines = [f"{self._outcomes.total()} {self._kind}: {in_words(self._outcomes)}"]
        breakdowns = ", ".join(f"{self._breakdowns[kind]} {kind}" for kind in BREAKDOWNS if self._breakdowns[kind])
        if breakdowns:
            lines.append(f"failed without a verdict: {breakdowns}")
        if self.settled_before:
            lines += self._whole()
        lines += [f"on {start}" for start in sorted(self._starts)]
        if self._module_records:
            lines.append(f"{self._module_records} module records are no API calls and were not checked")
        lines += [f"skipped {count}: {reason}" for reason, count in self._skips.most_common()]
        if self._explored:
            none = self._explored.count(0)
            without = f"; {none} had none that could be judged" if none else ""
            lines.append(f"{sum(self._explored)} inputs explored around {len(self._explored)} records{without}")
        if self._tensors_unused:
            count, first = len(self._tensors_unused), self._tensors_unused[0]
            others = " (and others)" if count > 1 else ""
            lines.append(f"{count} judged by the baseline's numbers, not by its tensors: {first}{others}")
        if self._saved:
            lines.append(f"failing cases ({format_size(self._saved_bytes)}, for pytest-msprobe replay):")
        lines += [f"  {count} {text}" for text, count in self._saved.most_common()]
        worst = sorted(self._worst, reverse=True)
        if worst:
            lines.append("largest share of what is allowed (over 1 is wrong):")
        lines += [f"  {margin:9.3g}  {record}  ({standard})" for margin, record, standard in worst]
        return lines

    def _whole(self) -> list[str]:
        """Return what a resumed journal had settled, and what that makes with this run."""
        before, failures = Counter[str](), Counter[str]()
        for outcome, count in self.settled_before.items():
            before[outcome if outcome in _OUTCOMES else "fail"] += count
            if outcome not in ("pass", "warn", "skip"):
                failures[outcome] = count
        lines = [f"{before.total()} settled before: {in_words(before)}"]
        if failures:
            kinds = ", ".join(f"{count} {outcome}" for outcome, count in failures.items())
            lines[0] += f" ({kinds}); --msprobe-rerun {','.join(failures)} checks these again"
        whole = before + self._outcomes
        return [*lines, f"{whole.total()} in all: {in_words(whole)}"]


def in_words(outcomes: Counter[str]) -> str:
    """Return how many records ended in which way."""
    return ", ".join(f"{outcomes[key]} {word}" for key, word in _OUTCOMES.items() if outcomes[key]) or "nothing left"
