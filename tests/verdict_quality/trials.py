"""Runs variants of a device over the calls of dumps and counts what the policy says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msprobe_hooks.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.replay.call import Call, read_call
from pytest_msprobe.replay.check import Replay
from pytest_msprobe.replay.trial import Setup
from pytest_msprobe.results import DirectionResult
from tests.verdict_quality.fault import Variant, VariantDevice


@dataclass(slots=True)
class Tally:
    """What came of one variant: records whose results it changed, those that failed, and reasons by record."""

    touched: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    apis: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> bool:
        """Whether at least one touched record failed."""
        return any(record in self.touched for record in self.failed)


def read_calls(dumps: Iterable[Path], per_api: int) -> list[tuple[str, Call]]:
    """Return at most ``per_api`` calls of each API and dump, spread over it, with the dump's name."""
    calls = []
    for path in dumps:
        dump = read_dump(path)
        if dump.framework != "pytorch":
            continue
        by_api: dict[str, list[str]] = {}
        for name in dump.api_names:
            if name.endswith(".forward"):
                by_api.setdefault(name.split(".")[1], []).append(name)
        for names in by_api.values():
            step = max(1, len(names) // per_api)
            calls += [(str(path), read_call(dump, name)) for name in names[::step][:per_api]]
    return calls


@dataclass(slots=True)
class Bench:
    """The calls to try, and what a healthy device makes of each."""

    calls: Sequence[tuple[str, Call]]
    policy: Policy
    seed: int = 0
    healthy: dict[tuple[str, str], int] = field(default_factory=dict)

    def run(self, variant: Variant | None) -> Tally:
        """Check all calls that a variant touches; None is the healthy device."""
        device = VariantDevice(variant)
        tally = Tally()
        for dump, call in self.calls:
            if variant is not None and not variant.touches(call.name.api):
                continue
            device.digests.clear()
            replay = Replay(call, Setup(device, self.policy, seed=self.seed))
            results = [replay.forward(), *([replay.backward()] if call.backward else [])]
            for result in results:
                self._count(tally, device, dump, result)
        return tally

    def _count(self, tally: Tally, device: VariantDevice, dump: str, result: DirectionResult) -> None:
        if device.variant is not None and result.verdict.standard == "run":
            raise RuntimeError(f"{device.variant.name!r} cannot run {result.record} of {dump}: {result.verdict.reason}")
        found = device.digests.get(result.record)
        key = (dump, result.record)
        if device.variant is None:
            if found is not None:
                self.healthy[key] = found
        elif found != self.healthy.get(key):
            tally.touched.add(f"{dump}::{result.record}")
        if result.verdict.outcome not in ("pass", "skip"):
            tally.failed[f"{dump}::{result.record}"] = result.verdict.reason
