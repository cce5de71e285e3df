"""Runs variants of a device over the calls of dumps and counts what the policy says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult
from tests.corpus.fault import Variant, VariantDevice


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call and the dump it is from."""

    dump: Path
    call: Call


@dataclass(slots=True)
class Tally:
    """What came of one variant: the records whose results it changed, and the reasons of those that failed.

    ``judged`` counts all records that had a verdict, skipped ones left out.
    """

    judged: int = 0
    touched: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def found(self) -> set[str]:
        """The touched records that failed."""
        return self.touched & self.failed.keys()


@dataclass(slots=True)
class Bench:
    """The calls to try, and what a healthy device makes of each (``healthy``, by record)."""

    calls: Sequence[RecordedCall]
    policy: Policy
    seed: int = 0
    healthy: dict[str, int] = field(default_factory=dict)

    def run(self, variant: Variant | None, *, until_found: bool = False) -> Tally:
        """Check all calls of a variant's APIs, or those until it is found; None, the healthy device, comes first.

        Raises RuntimeError where the variant itself raises: a crash is no fault that a standard finds.
        """
        device = VariantDevice(variant)
        tally = Tally()
        for recorded in self.calls:
            call = recorded.call
            if variant is not None and not variant.touches(call.name.api):
                continue
            if until_found and tally.found:
                break
            replay = Replay(call, ReplayConfig(device, self.policy, TorchFramework(), seed=self.seed))
            device.digests.clear()
            directions = [replay.forward] if variant is None or not variant.backward else []
            directions += [replay.backward] if call.backward else []
            for judged in directions:
                result = judged()
                self._count(tally, device, result, f"{recorded.dump}::{result.record}")
        return tally

    def _count(self, tally: Tally, device: VariantDevice, result: DirectionResult, record: str) -> None:
        if device.variant is not None and result.breakdown is Breakdown.RUN:
            raise RuntimeError(f"{device.variant.name!r} cannot run {record}: {result.verdict.reason}")
        digest = device.digests.pop(result.record, None)
        if device.variant is None and digest is not None:
            self.healthy[record] = digest
        elif digest != self.healthy.get(record):
            tally.touched.add(record)
        tally.judged += result.verdict.outcome != "skip"
        if result.verdict.outcome not in ("pass", "skip"):
            tally.failed[record] = result.verdict.reason


def read_calls(dumps: Iterable[Path], per_api: int) -> list[RecordedCall]:
    """Return at most ``per_api`` calls of each API and dump, spread over the dump; only dumps of pytorch have any."""
    calls: list[RecordedCall] = []
    for path in dumps:
        dump = read_dump(path)
        by_api: dict[str, list[str]] = {}
        for name in dump.api_names if dump.framework == "pytorch" else ():
            if name.endswith(".forward"):
                by_api.setdefault(parse_api_name(name).api, []).append(name)
        for names in by_api.values():
            step = max(1, len(names) // per_api)
            calls += [RecordedCall(path, read_call(dump, name)) for name in names[::step][:per_api]]
    return calls
