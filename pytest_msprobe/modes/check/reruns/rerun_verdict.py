"""Verdicts of further runs of a judged call, where they show that its result is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from msprobe_standards.verdict import Verdict
from pytest_msprobe.results.result import DirectionResult, OutputResult


@dataclass(frozen=True, slots=True)
class RerunVerdict:
    """Names of a failure: ``standard`` in reports, ``fault`` before its reason, ``note`` where more is wrong."""

    standard: str
    fault: str
    note: str

    def failed(self, result: DirectionResult, reasons: Mapping[str, str]) -> DirectionResult:
        """Return a result that fails for outputs by their reasons; what was wrong before stays the reason."""
        if result.verdict.outcome == "fail":
            return self.wrong(result, "; ".join(f"{path}: {reason}" for path, reason in reasons.items()))
        verdicts = {path: self._verdict(reason) for path, reason in reasons.items()}
        judged = {output.path: output for output in result.outputs}
        new = tuple(OutputResult(path, verdict) for path, verdict in verdicts.items() if path not in judged)
        outputs = (replace(output, verdict=verdicts.get(path, output.verdict)) for path, output in judged.items())
        return replace(result, verdict=next(iter(verdicts.values())), outputs=(*outputs, *new), skip=None)

    def wrong(self, result: DirectionResult, reason: str) -> DirectionResult:
        """Return a result that fails as a whole; one that was wrong before gets a note."""
        if result.verdict.outcome == "fail":
            return replace(result, notes=(*result.notes, f"{self.note}: {reason}"))
        return replace(result, verdict=self._verdict(reason), skip=None)

    def _verdict(self, reason: str) -> Verdict:
        return Verdict("fail", self.standard, f"{self.fault}: {reason}", margin=math.inf)
