"""Two dumps that are compared: both opened, their calls matched, and each compared when its item runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.fed_calls import fed_calls
from msprobe_hooks.dump.names import forward_of, is_forward, is_parameters_grad
from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL, StepRank
from msprobe_hooks.dump.values import read_values
from pytest_msprobe.modes.compare.judging.call_judge import CallJudge
from pytest_msprobe.modes.compare.judging.cancelled_sums import arrival_around, has_cancelled
from pytest_msprobe.modes.compare.judging.culprits import Culprits
from pytest_msprobe.modes.compare.judging.fed_modules import FedInputs
from pytest_msprobe.modes.compare.judging.given_values import Given, GivenValues
from pytest_msprobe.modes.compare.judging.policy import ComparePolicy, cause_of_required
from pytest_msprobe.modes.compare.judging.rules import outcome_of
from pytest_msprobe.modes.compare.judging.settings import Settings
from pytest_msprobe.modes.compare.judging.shape_changes import as_not_comparable, first_shape_change, may_be_consequence
from pytest_msprobe.modes.compare.matching import match_records
from pytest_msprobe.modes.compare.matching.matches import Match, Matching, api_of
from pytest_msprobe.modes.compare.matching.name_translation import MappedValues, Translation
from pytest_msprobe.modes.compare.matching.reordering import intact, named_calls
from pytest_msprobe.modes.compare.measure.call_values import by_torch
from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides, data_mode
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, DataMode, ForwardDifference, Outcome, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.compared_sides import Side, TensorTransformations
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.runs import RunNote

_NO_PLACE = StepRank()


class DumpPair:
    """Two dumps to be compared; ``index`` is the pair's number, ``rank`` and ``step`` those of their folders.

    From records to what is reported of them::

        target.records  ┐
                        ├ matching.matches    [Match("Torch.add.0.forward", "Torch.add.0.forward"), ...]   once
        golden.records  ┘        │            one for each item, in execution order
                            CallJudge         [Row("input.0", ...), Row("output.0", ...)]                  when it runs
                                 │
                            Culprits          ComparedCall with its rows, its outcome and its cause

    ``stage`` is the part of a training step that was recorded.
    ``notes`` are remarks on values, such as those that ranks hold differently where a run was merged of several.
    ``transformations`` turn values of one side first; ``metrics`` are the user's, measured besides the others.
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
        stage: str = "",
        notes: Sequence[RunNote] = (),
        transformations: TensorTransformations | None = None,
        metrics: Mapping[str, Metric] = {},
    ) -> None:
        self.index = index
        self.target, self.golden = named_calls(target), named_calls(golden)
        self.step, self.rank = place
        self.stage = stage
        self.mode = data_mode(target, golden)
        self.policy = policy
        self.fuzzy = fuzzy
        self._histograms = histograms
        self._mapped = MappedValues(mapping or {}, self.target, self.golden)
        self._has_mapping = bool(mapping)
        self.translation = translation or Translation()
        self.unused_mappings: list[str] = []
        self.notes = notes
        self.surroundings = target.surroundings
        self.transformations = transformations
        self.metrics = metrics
        self.fed = fed_calls(target)
        self._call_judge = CallJudge(
            ComparedSides(self.target, self.golden, self.mode, transformations, metrics, histograms),
            policy=policy,
            pairing=self.translation.values(self.target, self.golden, self._mapped),
        )

    @property
    def has_stack(self) -> bool:
        """Return whether the target's call stacks were recorded."""
        return self.surroundings.has_stacks

    @cached_property
    def matching(self) -> Matching:
        """Return which record of the target is which golden one."""
        rules = self.translation.matching_rules(self._mapped.records, fuzzy=self.fuzzy)
        return match_records(self.target, self.golden, rules)

    @cached_property
    def orders(self) -> Mapping[str, int]:
        """The place in execution order by the name of the test item."""
        return self.matching.orders

    @property
    def unmatched(self) -> int:
        """Return how many calls of either run have no partner."""
        return self.matching.unmatched

    @cached_property
    def reshaped(self) -> ComparedCall | None:
        """The first forward call that differs, where it was given another shape and all calls have a partner."""
        has_one_first = self.target.level not in (KERNEL_LEVEL, "debug") and not self.unmatched
        first = self._culprits.first(forward=True) if has_one_first else None
        match = None if first is None else self.matching.matches[first]
        if first is None or match is None or match.target is None or match.golden is None:
            return None
        call = self._call(first, "fail", self._judge(match.target, match.golden, self.mode))
        return call if first_shape_change(call) else None

    def compare(self, record: str) -> ComparedCall:
        """Compare one call, by the name of its item. Raises RecordError where one of its records is malformed."""
        order = self.orders[record]
        match = self.matching.matches[order]
        if match.target is None or match.golden is None:
            return self._unmatched(order, match)
        rows = self._judge(match.target, match.golden, self.mode)
        if not self.may_be_other_call(match):
            rows = self._settings.marked(order, rows)
        if self._histograms and self.mode == "tensor":
            rows = [by_torch().with_histogram(row, self.target, self.golden) for row in rows]
        # Of a structure, all that can be compared is that the call has a partner.
        outcome = "pass" if self.mode == "structure" else outcome_of(rows)
        if outcome in ("warn", "fail"):
            rows = self._culprits.excused(order, rows)
            outcome = outcome_of(rows)
        if self.policy.required:
            judged = [self._required(row) for row in rows]
            if outcome != "fail" and outcome_of(judged) == "fail":
                return replace(self._call(order, "fail", judged), cause=cause_of_required(judged))
            rows = judged
        call = self._call(order, outcome, rows)
        if outcome in ("pass", "skip"):
            if has_cancelled(rows):
                return replace(call, cause="cancels")
            if self.mode != "structure":
                self._culprits.note_agreement(order)
            return call
        cause = self._culprits.cause(call)
        is_culprit = call.has_settings or cause == "culprit"
        call = replace(
            call,
            cause="culprit" if is_culprit else cause,
            forward_difference=self._forward_difference(call) if is_culprit else "",
        )
        first = self.reshaped if self.policy.other_shapes == "skip" else None
        return as_not_comparable(call) if first is not None and may_be_consequence(call, first) else call

    def _judge(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        rows = self._call_judge.judge(target, golden, mode)
        return self._fed_inputs.judged(target, rows) if target in self.fed else rows

    @cached_property
    def _fed_inputs(self) -> FedInputs:
        return FedInputs(
            self.fed,
            self.matching.matches,
            lambda target, golden: self._call_judge.judge(target, golden, self.mode),
            self._module,
            self.policy.inherited,
        )

    def may_be_other_call(self, match: Match) -> bool:
        """Return whether calls were paired by their numbers though some of their API have no partner."""
        return (
            match.partner == "name"
            and not self._module(match.target or "")
            and api_of(match.target or "") in self.matching.apis_alone
        )

    def given(self, call: ComparedCall) -> Given:
        """Return what the forward call where the runs part was given that no call made, nothing for any other call."""
        is_first = self._are_calls and is_forward(call.record) and self._culprits.first(forward=True) == call.order
        if not is_first or call.fed:
            return Given(call.record, {}, {}, {})
        inputs = self._given_values.of_call(call)
        # Gradients that a backward call made otherwise are added up and reduced outside of any record.
        backward = self._culprits.first(forward=False) if inputs.outside else None
        return dataclasses.replace(inputs, outside={}) if backward is not None and backward < call.order else inputs

    @property
    def _are_calls(self) -> bool:
        """Return whether records are calls of a program, and neither kernels of a graph nor saved variables."""
        return not {self.target.level, self.golden.level} & {KERNEL_LEVEL, "debug"}

    def _forward_difference(self, call: ComparedCall) -> ForwardDifference:
        """Return how the forward call of a backward one differs."""
        order = self.orders.get(forward_of(call.record), call.order)
        match = self.matching.matches[order]
        if order == call.order or match.target is None or match.golden is None or self.is_equal(match):
            return ""
        rows = self._culprits.excused(order, self._judge(match.target, match.golden, self.mode))
        if outcome_of(rows) in ("warn", "fail"):
            return "beyond it"
        return "within the limit" if any(row.metrics.get(SCALED_ERROR) for row in rows) else ""

    @property
    def first_culprit(self) -> str:
        """The call where the runs part first, as far as it is known; empty where none is."""
        return self._culprits.first_name()

    def is_equal(self, match: Match) -> bool:
        """Return whether two records are the same, byte for byte; records that name files alone are not."""
        if match.target is None or match.golden is None or self._has_mapping or not self._has_statistics:
            return False
        records: dict[Side, str] = {"target": match.target, "golden": match.golden}
        turned = self.transformations
        if turned is not None and any(turned.may_concern(side, record) for side, record in records.items()):
            return False
        return bytes(self.target.records[match.target]) == bytes(self.golden.records[match.golden])

    @property
    def _has_statistics(self) -> bool:
        return self.target.has_statistics and self.golden.has_statistics

    @cached_property
    def _search_mode(self) -> DataMode:
        """Return what calls are looked at by that are not an item's own."""
        return "statistics" if self.mode == "tensor" and self._has_statistics else self.mode

    @cached_property
    def _settings(self) -> Settings:
        return Settings(
            self.matching.matches,
            inherited=self.policy.inherited,
            judge=self._searched,
            is_equal=self.is_equal,
        )

    @cached_property
    def _given_values(self) -> GivenValues:
        return GivenValues(
            self.matching.matches,
            (self.target, self.golden),
            inherited=self.policy.inherited,
            judge=self._searched,
            is_equal=self.is_equal,
        )

    def _searched(self, target: str, golden: str) -> list[Row]:
        return self._judge(target, golden, self._search_mode)

    @cached_property
    def _culprits(self) -> Culprits:
        return Culprits(
            self.matching,
            mode=self.mode,
            search_mode=self._search_mode,
            level=self.target.level,
            inherited=self.policy.inherited,
            judge=self._judge,
            is_equal=self.is_equal,
            arrived=self._arrived,
            module_of=self._module,
            fed=self.fed,
        )

    def _arrived(self, match: Match) -> list[Row]:
        """Return the judged gradients that arrived where those of a module's parameters were made, none for calls."""
        if match.target is None or match.golden is None or not is_parameters_grad(match.target):
            return []
        target, golden = arrival_around(self.target, match.target), arrival_around(self.golden, match.golden)
        if not target or not golden:
            return []
        rows = self._searched(target, golden)
        return [row for row in rows if row.group == "input"]

    def _required(self, row: Row) -> Row:
        for required in self.policy.required:
            row = required.judge(row)
        return row

    def _unmatched(self, order: int, match: Match) -> ComparedCall:
        is_target = bool(match.target)
        dump, name = (self.target, match.target) if is_target else (self.golden, match.golden)
        assert name is not None
        rows = [
            Row(
                group=placed.group,
                place=placed.place,
                target=placed.value if is_target else None,
                golden=None if is_target else placed.value,
                outcome="skip",
                unmeasured="unmatched",
            )
            for placed in read_values(dump, name)
        ]
        reason = "the golden run has no such call" if is_target else "the target has no such call"
        return replace(self._call(order, self.policy.unmatched, rows), reason=reason)

    def _call(self, order: int, outcome: Outcome, rows: Sequence[Row]) -> ComparedCall:
        match = self.matching.matches[order]
        target = match.target or ""
        return ComparedCall(
            record=match.item_name,
            pair=self.index,
            order=order,
            mode=self.mode,
            target=match.target,
            golden=match.golden,
            partner=match.partner,
            outcome=outcome,
            module=self._module(target),
            stack=intact(self.surroundings.stacks).of_call(target) or (),
            rows=tuple(rows),
            rank=self.rank,
            step=self.step,
            fed=self.fed[target].dump if target in self.fed else "",
            stage=self.stage,
        )

    def _module(self, record: str) -> str:
        """Return the record of the module in which a call was made, empty where it is not known."""
        return intact(self.surroundings.parents).of_call(record) or ""
