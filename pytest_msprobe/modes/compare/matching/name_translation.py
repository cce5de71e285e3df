"""Names and values of two runs that meet: by default both runs have the same, and an extension derives others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.values import PlacedValue, read_values
from pytest_msprobe.modes.compare.matching.matches import MatchingRules

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.matching.data_mapping import MappedValues
    from pytest_msprobe.modes.compare.rows import ComparedCall, Row

Name = Callable[[str], str]
#: The golden value of each value of the target that has another place there, and golden values left out.
Partners = tuple[dict[str, PlacedValue | None], frozenset[str]]


class ValuePairing:
    """Golden values that have another place in their call than the target's, and the rows of such calls judged."""

    def __init__(self, target: Dump, golden: Dump, mapped: MappedValues) -> None:
        self.target, self.golden = target, golden
        self.mapped = mapped

    def of_call(self, target: str, golden: str) -> Partners:
        """Return the golden value of each value that has another place there, and golden values left out.

        Values by full name; None has no golden value. Raises RecordError where a record is malformed or lacks a value
        that the data mapping names.
        """
        if target not in self.mapped:
            return {}, frozenset()
        target_values, golden_values = (
            read_values(self.target, target, as_passed=True),
            read_values(self.golden, golden),
        )
        return self.mapped.of_record(target, target_values, golden_values)

    def judged(self, target: str, golden: str, rows: list[Row], judge: Callable[[list[Row]], list[Row]]) -> list[Row]:
        """Return the measured rows of a call as ``judge`` has them by the policy."""
        return judge(rows)


@dataclass(frozen=True)
class Translation:
    """Translation of the names of two dumps. ``target`` and ``golden`` turn a record's name into the shared one.

    ``across``: the runs are of two frameworks. ``of_graph``: the calls of one run are kernels of a static graph.
    ``forced`` are golden records by the target's. ``export`` writes a file that says what was paired with what, next
    to the tables.
    """

    target: Name = str
    golden: Name = str
    across: bool = False
    of_graph: bool = False
    forced: Mapping[str, str] = field(default_factory=dict)
    export: Callable[[Path, Iterable[ComparedCall]], None] | None = None

    def matching_rules(self, forced: Mapping[str, str], *, fuzzy: bool) -> MatchingRules:
        """Return how calls of the two dumps find each other; ``forced`` are the records that a data mapping names."""
        return MatchingRules(
            fuzzy=fuzzy,
            forced={**forced, **{target: golden for target, golden in self.forced.items() if target not in forced}},
            translate=self.target,
            translate_golden=self.golden,
            across=self.across,
            of_graph=self.of_graph,
        )

    def values(self, target: Dump, golden: Dump, mapped: MappedValues) -> ValuePairing:
        """Return how values of two matched calls find each other."""
        return ValuePairing(target, golden, mapped)
