"""Reports on all parameters together: causes that several have in common, and msprobe's JSON file."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.checkpoint.items import CAUSE, EXTRA
from pytest_msprobe.extensions.checkpoint.megatron import LAYER
from pytest_msprobe.reports.page_file import JsonReport
from pytest_msprobe.reports.summary import Summary

# So many parameters are named.
_EXAMPLES = 3
# Differences that an adapter which was not merged makes.
_OF_ADAPTERS = {"all", "partly", "low_rank"}


class CheckpointSummary(Summary):
    """Counts verdicts, and names each cause that several parameters have in common on one line."""

    def __init__(self) -> None:
        super().__init__(module_records=0, kind="tensors", lists_worst=False)
        self._causes: defaultdict[str, list[str]] = defaultdict(list)
        self._kinds: dict[str, str] = {}
        self._matrices: set[str] = set()
        self._places: Counter[str] = Counter()
        self._is_measured = True

    def add(self, plain: dict[str, Any], name: str = "", card: str = "", skipped_test: str = "") -> None:
        """Count a parameter, and keep the cause of one that fails."""
        super().add(plain, name, card, skipped_test)
        record = plain["record"]
        self._places[LAYER.sub("*", record)] += 1
        cause = plain["extras"].get(CAUSE)
        if plain["verdict"]["outcome"] != "fail" or cause is None:
            return
        self._causes[cause["cause"].replace(f" of {record}", "")].append(record)
        self._kinds[record] = cause["kind"]
        shape = plain["extras"].get(EXTRA, {}).get("shape", [])
        self._matrices.update([record] if len(shape) == 2 else [])
        if cause["kind"] in _OF_ADAPTERS and not plain["verdict"]["metrics"]:
            self._is_measured = False

    def lines(self, finished_before: Counter[str] | None = None) -> list[str]:
        """Return the section's lines."""
        shared = sorted(self._causes.items(), key=lambda item: -len(item[1]))
        alike = [
            f"{len(names)} differ alike: {cause} ({listed(names, _EXAMPLES)})"
            for cause, names in shared
            if len(names) > 1
        ]
        return [*super().lines(finished_before), *alike, *self._adapters(), *self._unmeasured()]

    def _adapters(self) -> list[str]:
        """Return that whole projections differ and nothing besides, as where an adapter is not merged."""
        if not self._kinds or set(self._kinds.values()) - _OF_ADAPTERS or self._kinds.keys() - self._matrices:
            return []
        failed = Counter(LAYER.sub("*", record) for record in self._kinds)
        if len(failed) == len(self._places) or any(
            "*" not in place or count < 2 or count != self._places[place] for place, count in failed.items()
        ):
            return []
        names = listed([place.removesuffix(".weight").rpartition(".")[2] for place in failed], len(failed))
        layers = counted(max(failed.values()), "layer")
        return [
            f"what differs is {names}, in all {layers}, and nothing besides: LoRA that was not merged, or a loader "
            "that leaves them out"
        ]

    def _unmeasured(self) -> list[str]:
        if self._is_measured:
            return []
        return [
            'digests do not measure: write_weights(..., what="tensors") on both sides shows the distance, a second '
            "rounding and the rank of a difference"
        ]


class CheckpointJson(JsonReport):
    """Collects the numbers as reports arrive and writes them at the end."""

    title = "msprobe checkpoint JSON"
    #: What a resumed journal had finished belongs into the file as well.
    hears_finished = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._numbers: dict[str, Any] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the numbers of a parameter."""
        plain = getattr(report, "msprobe", None)
        if plain is not None and EXTRA in plain["extras"]:
            self._numbers[plain["record"]] = plain["extras"][EXTRA]

    def content(self) -> dict[str, Any]:
        """Return the numbers of each parameter."""
        return self._numbers
