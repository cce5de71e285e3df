"""Names and values of two runs that meet: the same in both, mapped by files, or derived by an extension."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.dump.values import PlacedValue, read_values
from msprobe_hooks.errors import RecordError
from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.matching.matches import MatchingRules
from pytest_msprobe.yaml_with_lines import Section, read_document

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.rows import ComparedCall, Row

_EXAMPLE = "Mint.add.0.forward.input.0: Torch.add.0.forward.input.0"
#: What a file says in place of a golden name where a value has no twin.
NOTHING = "N/A"


def read_mapping(source: Section) -> dict[str, str]:
    """Read a YAML mapping of full value names, the target's to the golden run's or ``N/A``.

    Raises OptionError that names file, line and remedy.
    """
    entries = read_document(source, _EXAMPLE).items(f"not a data mapping; it maps names of values, as in  {_EXAMPLE}")
    return {name: value.text("the name of a golden value, or N/A") for name, _, value in entries}


def record_of(name: str, dump: Dump) -> str | None:
    """Return the record that a value belongs to: the longest beginning of its name that is a record's name."""
    while name:
        if name in dump.records:
            return name
        name = name.rpartition(".")[0]
    return None


def require_known(source: Section, mapping: Mapping[str, str], targets: list[Dump], goldens: list[Dump]) -> None:
    """Raise OptionError where a name belongs to no record of any dump of its side."""
    for side, names, dumps in (
        ("target", mapping, targets),
        ("golden", [name for name in mapping.values() if name != NOTHING], goldens),
    ):
        unknown = [name for name in names if not any(record_of(name, dump) for dump in dumps)]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            suggestion = did_you_mean(unknown[0], {record for dump in dumps for record in dump.records})
            raise OptionError(
                f"no record of the {side} run has the value {unknown[0]!r}{more}{suggestion}",
                file=source.path,
                remedy="correct or delete it",
            )


class MappedValues:
    """Data mapping of the values of two runs."""

    def __init__(self, mapping: Mapping[str, str], target: Dump, golden: Dump) -> None:
        self._golden = golden
        #: The golden record of each record of the target that the mapping names.
        self.records: dict[str, str] = {}
        self._values: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for name, other in mapping.items():
            record, partner = record_of(name, target), record_of(other, golden)
            if record:
                self._values[record][name] = other
                if partner:
                    self.records.setdefault(record, partner)

    def __contains__(self, record: str) -> bool:
        """Return whether the mapping names values of a record of the target."""
        return record in self._values

    def of_record(
        self, record: str, target: Sequence[PlacedValue], golden: Sequence[PlacedValue]
    ) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
        """Return the golden value of each value of a record that the mapping names, and golden values it leaves out.

        ``target`` and ``golden`` are the values of the record and of its partner. A value without twin has None; the
        golden value in the same place then has none either, if no other has it. Raises RecordError where a named value
        is not there.
        """
        twins: dict[str, PlacedValue | None] = {}
        own = {placed.name: placed.key for placed in target}
        values: dict[str, dict[str, PlacedValue]] = {}
        for name, twin in self._values.get(record, {}).items():
            home = record_of(twin, self._golden) or ""
            if home and home not in values:
                values[home] = {placed.name: placed for placed in read_values(self._golden, home)}
            twins[name] = values[home].get(twin) if home else None
            if name not in own or (home and twins[name] is None):
                wrong, where = (name, record) if name not in own else (twin, home)
                raise RecordError(record_path(where), f"has no value {wrong}; correct that line of the data mapping")
        used = {placed.name for placed in twins.values() if placed is not None}
        places = {own[name] for name, placed in twins.items() if placed is None}
        return twins, frozenset(x.name for x in golden if x.key in places and x.name not in used)


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
