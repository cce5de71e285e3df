"""Verdicts of further runs of a call, repeated or on parts of its batch, and what results and the summary show."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from msprobe_standards.verdict import Verdict
from pytest_msprobe.engine.replay.rerun_differences import UnstableOutput, Variation
from pytest_msprobe.results.result import DirectionResult, OutputResult, decode_extra

_REPEATS, _BATCH_INVARIANCE = "repeats", "batch_invariance"


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


class Repeats(msgspec.Struct, frozen=True):
    """A call of ``api`` that ran ``times`` times: what differed, and whether the policy knows that it does.

    ``left_out`` is why it was not repeated.
    """

    api: str
    times: int
    unstable: tuple[UnstableOutput, ...] = ()
    is_known: bool = False
    left_out: str = ""

    def __str__(self) -> str:
        note = " (known to the policy)" if self.is_known else ""
        return "; ".join(f"{output.path}: {output.among(self.times)}" for output in self.unstable) + note


def with_repeats(result: DirectionResult, repeats: Repeats) -> DirectionResult:
    """Return a result with what came of repeated runs."""
    result = result.with_extra(_REPEATS, msgspec.to_builtins(repeats))
    return result.with_property("nondeterministic", str(repeats)) if repeats.unstable else result


def repeats_of(extras: Mapping[str, Any]) -> Repeats | None:
    """Return what the extras of a result say of repeated runs."""
    return decode_extra(extras, _REPEATS, Repeats)


class BatchInvariance(msgspec.Struct, frozen=True):
    """A call of ``api`` that ran on so many ``parts`` of its batch, and what differed.

    ``left_out`` is why it was not run on any.
    """

    api: str
    parts: int = 0
    variations: tuple[Variation, ...] = ()
    left_out: str = ""

    def __str__(self) -> str:
        return "; ".join(f"{variation.path}: {variation.among(self.parts)}" for variation in self.variations)


def with_batch_invariance(result: DirectionResult, invariance: BatchInvariance) -> DirectionResult:
    """Return a result with what came of running its call on parts of the batch."""
    result = result.with_extra(_BATCH_INVARIANCE, msgspec.to_builtins(invariance))
    return result.with_property("batch_dependent", str(invariance)) if invariance.variations else result


def batch_invariance_of(extras: Mapping[str, Any]) -> BatchInvariance | None:
    """Return what the extras of a result have of parts of the batch."""
    return decode_extra(extras, _BATCH_INVARIANCE, BatchInvariance)


class RepeatsTally:
    """Counts, for the summary, the records that were repeated, and lists the APIs that differ from themselves."""

    def __init__(self) -> None:
        self._times = 0
        self._repeated = 0
        self._left_out: Counter[str] = Counter()
        self._unstable: defaultdict[tuple[str, bool], list[Repeats]] = defaultdict(list)

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        repeats = repeats_of(extras)
        if repeats is None:
            return
        self._times = repeats.times
        if repeats.left_out:
            self._left_out[repeats.left_out] += 1
            return
        self._repeated += 1
        if repeats.unstable:
            self._unstable[repeats.api, repeats.is_known].append(repeats)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._times:
            return []
        differ = sum(map(len, self._unstable.values()))
        lines = [f"{self._repeated} run {self._times} times, {differ} of them nondeterministic"]
        lines += [f"  {_line(api, is_known, repeats)}" for (api, is_known), repeats in sorted(self._unstable.items())]
        return lines + [f"  {count} not repeated: {reason}" for reason, count in self._left_out.most_common()]


class BatchInvarianceTally:
    """Counts, for the summary, the records that ran on parts of their batch, and lists the APIs that depend on it."""

    def __init__(self) -> None:
        self._compared = 0
        self._left_out: Counter[str] = Counter()
        self._varying: defaultdict[str, list[BatchInvariance]] = defaultdict(list)

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        invariance = batch_invariance_of(extras)
        if invariance is None:
            return
        if invariance.left_out:
            self._left_out[invariance.left_out] += 1
            return
        self._compared += 1
        if invariance.variations:
            self._varying[invariance.api].append(invariance)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._compared and not self._left_out:
            return []
        lines = [f"{self._compared} run on parts of their batch, {sum(map(len, self._varying.values()))} depend on it"]
        for api, calls in sorted(self._varying.items()):
            largest = max(variation.largest for call in calls for variation in call.variations)
            lines.append(f"  {len(calls)} {api}: by at most {largest:.6g}")
        return lines + [f"  {count} not run on parts: {reason}" for reason, count in self._left_out.most_common()]


def _line(api: str, is_known: bool, calls: list[Repeats]) -> str:
    outputs = [output for repeats in calls for output in repeats.unstable]
    share, largest = max(output.share for output in outputs), max(output.largest for output in outputs)
    remark = ", known to the policy" if is_known else ""
    return f"{len(calls)} {api}: up to {100 * share:.3g} % of the elements, by at most {largest:.6g}{remark}"
