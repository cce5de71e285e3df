"""Two dumps that are compared: their calls matched, and each compared when its item runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.merging.unshard import Unmerged
from msprobe_hooks.dump.names import is_forward, is_module_name, split_called
from msprobe_hooks.dump.paths.recording import StepRank
from msprobe_hooks.dump.paths.static_graph import KERNEL_LEVEL
from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.dump.values import PlacedValue, read_values
from msprobe_hooks.errors import DumpError, RecordError
from pytest_msprobe.modes.compare.across.translation import Translation
from pytest_msprobe.modes.compare.across.value_pairing import (
    across_frameworks,
    at_precision,
    coarsest_so_far,
    drop_unrecorded,
    named_values,
    paired_gradients,
    renamed_parameters,
    without_sums,
)
from pytest_msprobe.modes.compare.judge_call import cause_of, compare_values, outcome_of
from pytest_msprobe.modes.compare.judging import recorder_differences
from pytest_msprobe.modes.compare.judging.cancellation import drop_cancelled_gradients
from pytest_msprobe.modes.compare.judging.shape_changes import as_not_comparable, first_shape_change, may_be_consequence
from pytest_msprobe.modes.compare.matching.call_signature import intact, named_calls
from pytest_msprobe.modes.compare.matching.data_mapping import record_of
from pytest_msprobe.modes.compare.matching.matching import Match, Matching, MatchingRules, match_records
from pytest_msprobe.modes.compare.rows import Cause, ComparedCall, DataMode, Outcome, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy

_GOLDEN_MARK = "[golden]"
_NO_PLACE = StepRank()


class Pair:
    """Two dumps to be compared; ``index`` is the pair's number, ``rank`` and ``step`` those of their folders.

    ``unmerged`` is what ranks hold differently, where a run was merged of several.
    """

    def __init__(
        self,
        index: int,
        target: Dump,
        golden: Dump,
        *,
        policy: ComparePolicy,
        fuzzy: bool = False,
        histograms: bool = False,
        mapping: Mapping[str, str] | None = None,
        translation: Translation | None = None,
        place: StepRank = _NO_PLACE,
        unmerged: Sequence[Unmerged] = (),
    ) -> None:
        self.index = index
        self.target, self.golden = named_calls(target), named_calls(golden)
        self.step, self.rank = place
        self.mode = data_mode(target, golden)
        self.policy = policy
        self.fuzzy = fuzzy
        self._histograms = histograms
        self._mapping = mapping or {}
        self.translation = translation or Translation()
        self.unused_mappings: list[str] = []
        self.unmerged = unmerged
        self.surroundings = target.surroundings
        self._first: dict[bool | None, int | None] = {}
        # The places of calls that were compared by their own mode and do not differ.
        self._agreeing: set[int] = set()

    @property
    def has_stack(self) -> bool:
        """Whether the target's call stacks were recorded."""
        return self.surroundings.has_stacks

    @cached_property
    def matching(self) -> Matching:
        """Which record of the target is which golden one."""
        forced: dict[str, str] = {}
        for name, other in self._mapping.items():
            target, golden = record_of(name, self.target), record_of(other, self.golden)
            if target and golden:
                forced.setdefault(target, golden)
        names = self.translation
        rules = MatchingRules(
            fuzzy=self.fuzzy,
            forced=forced | {target: golden for target, golden in names.forced.items() if target not in forced},
            translate=names.target,
            translate_golden=names.golden,
            across=names.across,
            forced_only=names.layered,
            of_graph=names.of_graph,
        )
        return match_records(self.target, self.golden, rules)

    @property
    def _has_statistics(self) -> bool:
        return self.target.has_statistics and self.golden.has_statistics

    @cached_property
    def unmatched(self) -> int:
        """How many calls of either run have no partner."""
        return sum(match.target is None or match.golden is None for match in self.matching.matches)

    @cached_property
    def reshaped(self) -> ComparedCall | None:
        """The first forward call that differs, where it was given another shape and all calls have a partner."""
        has_one_first = self.target.level not in (KERNEL_LEVEL, "debug") and not self.unmatched
        first = self._first_of(forward=True) if has_one_first else None
        match = None if first is None else self.matching.matches[first]
        if first is None or match is None or match.target is None or match.golden is None:
            return None
        call = self._call(first, "fail", self._judged(match.target, match.golden, self.mode))
        return call if first_shape_change(call) else None

    @cached_property
    def orders(self) -> dict[str, int]:
        """The place in execution order by the name of the test item."""
        return {item_name(match): order for order, match in enumerate(self.matching.matches)}

    @cached_property
    def _named(self) -> dict[str, dict[str, str]]:
        """What the mapping says of the values of each record of the target."""
        named: dict[str, dict[str, str]] = {}
        for name, other in self._mapping.items():
            record = record_of(name, self.target)
            if record:
                named.setdefault(record, {})[name] = other
        return named

    def compare(self, record: str) -> ComparedCall:
        """Compare one call, by the name of its item. Raises RecordError where one of its records is malformed."""
        order = self.orders[record]
        match = self.matching.matches[order]
        if match.target is None or match.golden is None:
            return self._unmatched(order, match)
        rows = self._judged(match.target, match.golden, self.mode)
        if self._histograms and self.mode == "tensor":
            from pytest_msprobe.modes.compare.measure.histogram import with_histogram

            rows = [with_histogram(row, self.target, self.golden) for row in rows]
        # Of a structure, all that can be compared is that the call has a partner.
        outcome = "pass" if self.mode == "structure" else outcome_of(rows)
        call = self._call(order, outcome, rows)
        if outcome in ("pass", "skip"):
            if self.mode != "structure":
                self._agreeing.add(order)
            return call
        call = replace(call, cause=self._cause(call))
        first = self.reshaped if self.policy.other_shapes == "skip" else None
        return as_not_comparable(call) if first is not None and may_be_consequence(call, first) else call

    def _judged(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        rows = self._judged_alone(target, golden, mode)
        return (
            rows if is_forward(target) else drop_cancelled_gradients(rows, (self.target, target), (self.golden, golden))
        )

    def _judged_alone(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        named, dropped = self._partners_of_values(target, golden)
        rows = compare_values(self.target, target, self.golden, golden, mode, named, dropped)
        api = split_called(target)[0].rpartition(".")[2]
        if not self.translation.across:
            if self._were_recorded_otherwise:
                rows = [recorder_differences.with_rounded_integers(row) for row in rows]
            return self._judged_rows(api, mode, rows)
        shared = [across_frameworks(row, is_forward=is_forward(target)) for row in rows]
        if self.translation.of_graph:
            shared = [drop_unrecorded(row) for row in shared]
        judged = self._judged_rows(api, mode, shared)
        if outcome_of(judged) in ("warn", "fail"):
            coarsest = [so_far[record] for so_far, record in zip(self._precisions, (target, golden), strict=True)]
            judged = self._judged_rows(api, mode, [at_precision(row, *coarsest) for row in shared])
        judged = without_sums(judged, target)
        return [
            replace(row, target=recorded.target, golden=recorded.golden)
            for row, recorded in zip(judged, rows, strict=True)
        ]

    @cached_property
    def _were_recorded_otherwise(self) -> bool:
        return recorder_differences.use_different_recorders(self.target, self.golden)

    @cached_property
    def _precisions(self) -> tuple[dict[str, str], dict[str, str]]:
        return coarsest_so_far(self.target), coarsest_so_far(self.golden)

    def _judged_rows(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        counted = [row for row in rows if row.unmeasured != "left out"]
        judged = self.policy.rule.judge(api, mode, counted)
        if len(counted) == len(rows):
            return judged
        following = iter(judged)
        return [row if row.unmeasured == "left out" else next(following) for row in rows]

    def _partners_of_values(self, target: str, golden: str) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
        """Return the golden value of each value that has another place there, and golden values left out."""
        pair = self.translation.pair_of(target, golden)
        is_reordered = self._were_recorded_otherwise and not is_forward(target)
        if pair is None and not self.translation.across and target not in self._named and not is_reordered:
            return {}, frozenset()
        mine, other = read_values(self.target, target), read_values(self.golden, golden)
        named, dropped = self._golden_values(target, mine, other)
        if is_reordered and not named:
            return recorder_differences.paired_gradients(target, mine, other)
        if not self.translation.across:
            return named, dropped
        found = renamed_parameters(mine, other) if is_module_name(target) else {}
        more: tuple[dict[str, PlacedValue | None], frozenset[str]] = {}, frozenset()
        if pair is not None:
            is_reversed = self.translation.reversed
            more = named_values(pair, mine, other, is_forward=is_forward(target), is_reversed=is_reversed)
        elif not is_forward(target) and not named:
            more = paired_gradients(mine, other)
        return found | more[0] | named, dropped | more[1]

    def _golden_values(
        self, record: str, mine: list[PlacedValue], other: list[PlacedValue]
    ) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
        """Return what the data mapping gives to the values of a record, and the golden values that it leaves out.

        What it says has no twin is None; the golden value in the same place then has none either, if no other does.
        """
        found: dict[str, PlacedValue | None] = {}
        own = {placed[2].name: placed[:2] for placed in mine}
        values: dict[str, dict[str, PlacedValue]] = {}
        for name, twin in self._named.get(record, {}).items():
            home = record_of(twin, self.golden) or ""
            if home and home not in values:
                values[home] = {placed[2].name: placed for placed in read_values(self.golden, home)}
            found[name] = values[home].get(twin) if home else None
            if name not in own or (home and found[name] is None):
                wrong, where = (name, record) if name not in own else (twin, home)
                raise RecordError(record_path(where), f"has no value {wrong}; correct its line in the data mapping")
        used = {placed[2].name for placed in found.values() if placed is not None}
        places = {own[name] for name, placed in found.items() if placed is None}
        return found, frozenset(x[2].name for x in other if x[:2] in places and x[2].name not in used)

    def _unmatched(self, order: int, match: Match) -> ComparedCall:
        is_target = bool(match.target)
        dump, name = (self.target, match.target) if is_target else (self.golden, match.golden)
        assert name is not None
        rows = [
            Row(group, place, value if is_target else None, None if is_target else value, "skip", {}, "unmatched")
            for group, place, value in read_values(dump, name)
        ]
        reason = "the golden run has no such call" if is_target else "the target has no such call"
        return self._call(order, self.policy.unmatched, rows, reason)

    def _call(self, order: int, outcome: Outcome, rows: Sequence[Row], reason: str = "") -> ComparedCall:
        match = self.matching.matches[order]
        target = match.target or ""
        return ComparedCall(
            item_name(match),
            self.index,
            order,
            self.mode,
            match.target,
            match.golden,
            match.partner,
            outcome,
            "",
            reason,
            self._module(target),
            self._stack(target),
            tuple(rows),
            self.rank,
            self.step,
        )

    def _cause(self, call: ComparedCall) -> Cause:
        first = self.first_suspect(call.record)
        if first is not None and call.order <= first:
            return "culprit"
        if first is not None and call.record in self._around(first):
            return "inherited"
        return cause_of(call.rows, self.policy)

    def _around(self, order: int) -> set[str]:
        """Return the modules in which a call was made, the innermost and those around it."""
        return set(modules_around(self.matching.matches[order].target or "", self._module))

    def _module(self, record: str) -> str:
        """Return the record of the module in which a call was made, empty where it is not known."""
        return intact(self.surroundings.parents).of_call(record) or ""

    def _stack(self, record: str) -> tuple[str, ...]:
        """Return the call stack of a record, innermost frame first."""
        return intact(self.surroundings.stacks).of_call(record) or ()

    def first_suspect(self, record: str) -> int | None:
        """Return the place of the first call that differs of a record's direction, which nothing before has caused.

        Kernels of a graph follow each other whatever their direction.

        Statistics or checksums tell, so that no tensor is read where the dumps hold these; None where nothing tells.
        """
        return self._first_of(None if self.target.level == KERNEL_LEVEL else is_forward(record))

    def _first_of(self, forward: bool | None) -> int | None:
        if forward not in self._first:
            self._first[forward] = next(self._suspects(forward), None)
        return self._first[forward]

    def _suspects(self, forward: bool | None) -> Iterator[int]:
        mode: DataMode = "statistics" if self.mode == "tensor" and self._has_statistics else self.mode
        for order, match in enumerate(self.matching.matches):
            target, golden = match.target, match.golden
            if target is None or golden is None or forward not in (None, is_forward(target)):
                continue
            if mode == self.mode and order in self._agreeing:
                continue
            try:
                if not self.is_equal(match) and outcome_of(self._judged(target, golden, mode)) in ("warn", "fail"):
                    yield order
            except DumpError:
                continue

    def is_equal(self, match: Match) -> bool:
        """Tell whether two records are the same, byte for byte; of files alone they tell nothing."""
        if match.target is None or match.golden is None or self._mapping or not self._has_statistics:
            return False
        return bytes(self.target.records[match.target]) == bytes(self.golden.records[match.golden])


def item_name(match: Match) -> str:
    """Return the name of a call's test item; a call of the golden run alone is marked."""
    return match.target if match.target is not None else f"{match.golden}{_GOLDEN_MARK}"


# A search for overflow writes the tensors of what it finds.
_WITH_TENSORS = ("tensor", "overflow_check", "nan_check")


def data_mode(target: Dump, golden: Dump) -> DataMode:
    """Return what two dumps can be compared by. Raises DumpError where they were recorded differently."""
    if target.task != golden.task:
        raise DumpError(
            f"{target.path}: task {target.task}, but {golden.path} has task {golden.task}; "
            "record both with the same task"
        )
    if target.task not in (*_WITH_TENSORS, "statistics", "structure"):
        raise DumpError(
            f"{target.path}: task {target.task} is not compared; record runs with task tensor, statistics or structure"
        )
    if target.level != golden.level:
        raise DumpError(
            f"{target.path}: level {target.level}, but {golden.path} has level {golden.level}; "
            "record both at the same level"
        )
    if target.task == "structure":
        return "structure"
    if target.task in _WITH_TENSORS:
        return "tensor"
    target_is_summed, golden_is_summed = _has_checksums(target), _has_checksums(golden)
    if target_is_summed != golden_is_summed:
        plain, summed = (golden, target) if target_is_summed else (target, golden)
        raise DumpError(
            f"{summed.path}: recorded with checksums (summary_mode md5), {plain.path} without; record both the same way"
        )
    return "md5" if target_is_summed else "statistics"


def _has_checksums(dump: Dump) -> bool:
    return any(b'"md5"' in bytes(raw) for raw in dump.records.values())
