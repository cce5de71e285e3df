"""One matched call judged: its values paired, measured, and held against a policy."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import forward_of, is_forward, plain_dtype, split_called
from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.judging.cancelled_sums import (
    Terms,
    arrival_around,
    arrival_of,
    drop_cancelled_gradients,
    judged_by_terms,
)
from pytest_msprobe.modes.compare.judging.gradient_scales import ARRIVED
from pytest_msprobe.modes.compare.judging.rules import Scaled
from pytest_msprobe.modes.compare.judging.unread_values import drop_unread, measure_defined_rows
from pytest_msprobe.modes.compare.measure.call_values import compare_values
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, DataMode, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.matching.name_translation import ValuePairing
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides


class CallJudge:
    """Judges matched calls of two dumps by a policy."""

    def __init__(self, sides: ComparedSides, *, policy: ComparePolicy, pairing: ValuePairing) -> None:
        self._sides = sides
        self._target, self._golden = sides.target, sides.golden
        self._policy = policy
        self._pairing = pairing
        self._run_dtypes = RunDtypes(self._target, self._golden)

    def judge(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        """Return the judged rows of two records. Raises RecordError where one is malformed."""
        rows = self._judge(target, golden, mode)
        if isinstance(self._policy.rule, Scaled):
            rows = judged_by_terms(
                rows,
                target,
                lambda: self._terms(target, golden, rows, mode),
                usual=self._policy.rule.usual,
                inherited=self._policy.inherited,
            )
        return (
            rows
            if is_forward(target)
            else drop_cancelled_gradients(rows, (self._target, target), (self._golden, golden))
        )

    def _terms(self, target: str, golden: str, rows: list[Row], mode: DataMode) -> Terms:
        """Return what a call added up: of a backward call, what its forward one was given and made as well."""
        if is_forward(target) or self._target.level == KERNEL_LEVEL:
            return Terms({row.place: row for row in rows if row.group == "input"})
        arrivals = arrival_around(self._target, target), arrival_around(self._golden, golden)
        if arrivals != (target, golden):
            rows = self._recorded(*arrivals, mode)
        forward = self._recorded(forward_of(arrivals[0]), forward_of(arrivals[1]), mode)
        places = {f"parameters.{row.place}" if row.group == "parameters" else row.place: row for row in forward}
        arrived = {ARRIVED + row.place.removeprefix("input"): row for row in rows if row.group == "input"}
        return Terms(places | arrived, its_own=bool(arrival_of(self._target, target)))

    def _recorded(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        are_recorded = target in self._target.records and golden in self._golden.records
        return self._measured(target, golden, mode) if are_recorded else []

    def _measured(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        named, dropped = self._pairing.of_call(target, golden)
        return compare_values(self._sides, target, golden, mode, named, dropped)

    def _judge(self, target: str, golden: str, mode: DataMode) -> list[Row]:
        rows = self._measured(target, golden, mode)
        rows = measure_defined_rows(rows, self._sides, target)
        rows = drop_unread(rows, (self._target, target), (self._golden, golden))
        rows = self._run_dtypes.judged(rows)
        api = split_called(target)[0].rpartition(".")[2]
        return self._pairing.judged(target, golden, rows, partial(self._by_policy, api, mode))

    def _by_policy(self, api: str, mode: DataMode, rows: list[Row]) -> list[Row]:
        counted = [row for row in rows if row.unmeasured != "left out"]
        judged = self._policy.rule.judge(api, mode, counted)
        if len(counted) == len(rows):
            return judged
        following = iter(judged)
        return [row if row.unmeasured == "left out" else next(following) for row in rows]


class RunDtypes:
    """The dtypes that two runs are in, read from their records when a dtype differs for the first time.

    Arguments that name them differ since the runs do, and are no settings.
    """

    def __init__(self, target: Dump, golden: Dump) -> None:
        self._sides = target, golden

    def judged(self, rows: list[Row]) -> list[Row]:
        """Return the measured rows, with those left out that differ as the runs do."""
        return [self._left_out(row) if self._is_of_runs(row) else row for row in rows]

    def _is_of_runs(self, row: Row) -> bool:
        if row.target is None or row.golden is None or not row.metrics.get(SCALED_ERROR):
            return False
        values = row.target, row.golden
        return all(value.type.endswith(".dtype") for value in values) and self._dtypes == tuple(
            plain_dtype(value.text) for value in values
        )

    def _left_out(self, row: Row) -> Row:
        reason = "not compared: the runs are in {} and {}".format(*self._dtypes)
        return replace(row, outcome="pass", metrics={}, unmeasured="left out", messages=(reason,))

    @cached_property
    def _dtypes(self) -> tuple[str, str]:
        target, golden = map(_only_dtype, self._sides)
        return target, golden


def _only_dtype(dump: Dump) -> str:
    """Return the dtype of all tensors that require a gradient and that calls were given, empty where it varies."""
    dtypes: set[str] = set()
    for record in filter(is_forward, dump.records):
        # What cannot be read is reported by its own item.
        with suppress(DumpError):
            dtypes.update(
                plain_dtype(placed.value.dtype)
                for placed in read_values(dump, record)
                if placed.group in ("input", "parameters") and placed.value.requires_grad
            )
        if len(dtypes) > 1:
            return ""
    return next(iter(dtypes), "")
