"""What is let into memory of a large call: blocks first, the whole where blocks do not give the last word."""

from __future__ import annotations

from collections.abc import Callable

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.devices.reduced_precision import ReducedPrecision, reduced_precision
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.blockwise.judging import InBlocks, Select, judged_in_blocks
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.partition.plan import Plan, plan_of_call
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import admit_whole, recorded_bytes
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.system_memory import free_bytes
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.skip_reasons import Skip


class LargeCall:
    """How golden of one call is computed: in blocks where ``plan`` says how, else as a whole.

    ``is_whole``: that it is not to be cut, since more is asked of golden than verdicts.
    """

    def __init__(self, call: Call, setup: ReplayConfig, *, is_whole: bool) -> None:
        self.plan: Plan | None = None
        self._call, self._setup = call, setup
        is_elsewhere = setup.baseline is not None or setup.framework.name != PYTORCH
        self._is_whole = is_whole or setup.measure_all or setup.raised_above is None or is_elsewhere

    def working_bytes(self) -> int | None:
        """Return with how many bytes golden is computed in blocks; None where it is not."""
        above = self._setup.raised_above
        self.plan = None if self._is_whole or above is None else plan_of_call(self._call, above)
        return None if self.plan is None else self.plan.working_bytes

    def judged(
        self, trial: Trial, direction: Direction, select: Select, is_conclusive: Callable[[], bool]
    ) -> list[OutputResult] | None:
        """Return the verdicts that blocks give; None where golden is computed as a whole, which is let in then.

        ``is_telling``: whether the inputs show what the recorded ones did. Raises Skip where only the whole shows it or
        does not fit.
        """
        if self.plan is None:
            return None
        found = judged_in_blocks(trial, self.plan, direction, select, self._let_in_baseline)
        if found is not None and not is_conclusive():
            found = None
        if found is not None and found.is_sure:
            return found.results
        plan = self.plan
        try:
            self.admit_whole()
        except Skip:
            if found is None or self._may_be_excused(found):
                raise
            return self._in_float64(trial, plan, direction, select) or found.results
        return None

    def _in_float64(self, trial: Trial, plan: Plan, direction: Direction, select: Select) -> list[OutputResult] | None:
        """Return the verdicts against golden in float64, block by block; None where it is float64 already."""
        if not self._setup.policy.failures_in_float64 or not trial.raise_golden():
            return None
        try:
            found = judged_in_blocks(trial, plan, direction, select, self._let_in_baseline)
        except Skip:
            found = None
        if found is None:
            trial.lower_golden()
        return None if found is None else found.results

    def admit_whole(self) -> None:
        """Ask for the memory that golden takes as a whole. Raises Skip where it does not fit."""
        if self.plan is not None:
            plan, setup = self.plan, self._setup
            admit_whole(self._call, setup.device, setup.admit, plan.working_bytes, plan.window_bytes)
            self.plan, self._is_whole = None, True

    def _let_in_baseline(self) -> None:
        """Ask for the memory of a whole baseline in addition to what was let in. Raises Skip where it does not fit."""
        self._setup.admit(recorded_bytes(self._call), free_bytes)

    def _may_be_excused(self, found: InBlocks) -> bool:
        """Return whether modes of the device might explain a failure: only whole results are judged in modes."""
        stated = self._setup.math_mode == "auto" and reduced_precision(self._setup.device) != ReducedPrecision()
        return stated and any(result.verdict.outcome == "fail" for result in found.results)
