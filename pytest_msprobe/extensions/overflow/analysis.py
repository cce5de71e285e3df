"""What a process knows of the dumps in which it looks for overflow, found out when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

from msprobe_hooks.dump.anomalies.ignore_rules import IgnoreRules
from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.communication.ranks import Step, find_steps
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.overflow.call_site import Origin, origin_of
from pytest_msprobe.extensions.overflow.nonfinite_origins import Analysis, Source, analyse


class Findings:
    """The analyses of all steps and the origins of records."""

    def __init__(self, dumps: Iterable[Dump], rules: IgnoreRules) -> None:
        self._rules = rules
        self.steps: list[Step] = find_steps(dumps)
        self._places = {
            dump.path: (number, rank) for number, step in enumerate(self.steps) for rank, dump in step.ranks.items()
        }
        self._surroundings: dict[Path, Surroundings] = {}
        self._inside: dict[Path, dict[str, str]] = {}

    @functools.cached_property
    def analyses(self) -> list[Analysis]:
        """What came of each step."""
        return [analyse(step, self._rules) for step in self.steps]

    @property
    def by_step(self) -> list[tuple[Step, Analysis]]:
        """Each step with what came of it."""
        return list(zip(self.steps, self.analyses, strict=True))

    def origin(self, dump: Dump, name: str) -> Origin:
        """Return where a record was made."""
        folder = dump.path.parent
        return origin_of(self._surroundings.setdefault(folder, Surroundings(folder)), name)

    def source(self, dump: Dump, name: str) -> Source | None:
        """Return the record of another rank that a communication record's inf or nan came from."""
        analysis, rank = self._analysis(dump)
        return analysis.received.get((rank, name))

    def inside(self, dump: Dump, module: str) -> str | None:
        """Return the first record within a module's call in which inf or nan arises."""
        if dump.path not in self._inside:
            analysis, rank = self._analysis(dump)
            inside = self._inside[dump.path] = {}
            for name in analysis.arising[rank]:
                for around in self.origin(dump, name).modules:
                    inside.setdefault(around, name)
        return self._inside[dump.path].get(module)

    def _analysis(self, dump: Dump) -> tuple[Analysis, int]:
        step, rank = self._places[dump.path]
        return self.analyses[step], rank


findings_key = pytest.StashKey[Findings]()
