"""API records as items that are replayed on the device, judged by the policy, and followed up."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from msprobe_hooks.dump.containers import file_of
from msprobe_hooks.dump.names import api_record, parse_api_name, split_direction
from msprobe_hooks.dump.schema import record_path, tensors_of
from msprobe_hooks.errors import RecordError
from msprobe_standards.verdict import Verdict
from pytest_msprobe.containment.process_state import ProcessState, state_key
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.baseline_file import Baseline, read_baseline
from pytest_msprobe.modes.check.baselines.tensor_folder import file_name, tensors_folder
from pytest_msprobe.modes.check.follow_ups import FollowUp, Judged, followed_up
from pytest_msprobe.modes.check.layout_choice import LAYOUTS, LayoutChooser
from pytest_msprobe.modes.check.options import CheckOptions, check_key
from pytest_msprobe.results.outcomes import Breakdown, Skip, SkipReason
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, failed_without_result, left_open_of
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.item_bases import preselect
from pytest_msprobe.run.options import Options, options_key
from pytest_msprobe.run.setups import Setups, setups_key
from pytest_msprobe.storage.files import fingerprint

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from msprobe_standards import Standard
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.engine.replay.check import JudgeForward, Replay
    from pytest_msprobe.modes.check.baselines.recorded_result import RecordedResult
    from pytest_msprobe.modes.check.save_case import SaveFailure


class Checker:
    """Checks the records of this process, and keeps a call between its two directions."""

    def __init__(self, options: Options, check: CheckOptions, setups: Setups, state: ProcessState) -> None:
        self._options = options
        self._check = check
        self._setups = setups
        self._state = state
        self._fingerprints: dict[Path, str] = {}
        self._last: tuple[Dump, str, Replay] | None = None
        self._layouts = LayoutChooser(options.layout)
        state.on_forget(self._forget)

    def check(
        self, dump: Dump, record: str, judge: JudgeForward | None = None, standard: Standard | None = None
    ) -> DirectionResult:
        """Check one record; its call's forward run is remembered for the backward record where that comes next.

        A forward record may have another judge than the policy, and any a standard that judges all of it.

        Raises DumpError where the record is malformed or a tensor file is unusable.
        """
        try:
            replay = self._replay(dump, record, standard)
            direction = parse_api_name(record).direction
            started = time.monotonic()
            try:
                if judge is not None:
                    return replay.forward(judge)
                result = replay.judge(direction)
                if result.skip is None and self._layouts.derives(dump, replay.call):
                    result = result.with_extra(LAYOUTS, "derived")
                return followed_up(Judged(dump, replay, direction, result, started), self._follow_ups)
            finally:
                if direction == "backward" or replay.call.backward is None:
                    self._state.forget()
        except Skip as skip:
            return DirectionResult(record, Verdict("skip", "", str(skip)), skip=skip.reason)
        except BaselineError as error:
            return failed_without_result(record, Breakdown.BASELINE, str(error))

    def tensor_files(self, dump: Dump, record: str) -> list[Path]:
        """Return the tensor files that the check of a record reads; none of a record that is malformed."""
        try:
            call = _read_call(dump, parse_api_name(record).forward, record)
        except (RecordError, Skip, ValueError, KeyError):
            return []
        arriving = [] if call.backward is None else call.backward.grad_outputs
        elements = [*call.forward.args, *call.forward.kwargs.values(), *arriving]
        inputs = tensors_of(elements) if self._options.real_data == "auto" else []
        files = [call.tensor_folder / file_of(tensor.data_name) for tensor in inputs if tensor.data_name]
        if self._baseline is not None:
            row = self._baseline.row(self._fingerprint(dump), record)
            files += [tensors_folder(self._baseline.path) / file_name(record, row.tensors)] if row.tensors else []
        return files

    def _forget(self) -> None:
        self._last = None

    @functools.cached_property
    def _follow_ups(self) -> list[FollowUp]:
        """Return what the options ask for, in the order in which it happens."""
        from pytest_msprobe.modes.check.failure_context import ReportLeftToCpu, add_failure_context

        steps: list[FollowUp] = [add_failure_context]
        save: SaveFailure | None = None
        if self._check.save_baseline_tensors is not None:
            from pytest_msprobe.modes.check.baselines.save_tensors import KeepTensors

            steps.append(KeepTensors(self._check.save_baseline_tensors, self._fingerprint))
        steps.append(ReportLeftToCpu())
        # What these find is a failure to be saved like any other.
        if self._check.repeat is not None:
            from pytest_msprobe.modes.check.reruns import Repeat

            steps.append(Repeat(self._check.repeat))
        if self._check.batch_invariant:
            from pytest_msprobe.modes.check.reruns import BatchInvariant

            steps.append(BatchInvariant())
        steps += filter(None, (feature.follow_up(self._options) for feature in self._check.features))
        if self._check.save is not None:
            from pytest_msprobe.modes.check.save_case import SaveFailure

            save = SaveFailure(self._check.save, self._options.policy, self._options.level)
            steps.append(save)
        steps += filter(None, (feature.last_step(self._options, save) for feature in self._check.features))
        return steps

    @functools.cached_property
    def _baseline(self) -> Baseline | None:
        path = self._check.baseline
        return None if path is None else read_baseline(path)

    def _recorded(self, dump: Dump) -> Callable[[str], RecordedResult] | None:
        baseline = self._baseline
        if baseline is None:
            return None
        from pytest_msprobe.modes.check.baselines.recorded_result import RecordedResult

        digest, folder = self._fingerprint(dump), tensors_folder(baseline.path)
        return lambda record: RecordedResult(baseline.row(digest, record), folder)

    def _fingerprint(self, dump: Dump) -> str:
        if dump.path not in self._fingerprints:
            self._fingerprints[dump.path] = fingerprint(dump.path)
        return self._fingerprints[dump.path]

    def _replay(self, dump: Dump, record: str, standard: Standard | None) -> Replay:
        try:
            forward = parse_api_name(record).forward
        except ValueError as error:
            raise RecordError(record_path(record), str(error)) from None
        # A forward record that comes again is to be run again.
        if record != forward and self._last is not None and self._last[0] is dump and self._last[1] == forward:
            return self._last[2]
        self._state.forget()
        if forward not in dump.records:
            raise Skip(SkipReason.NO_FORWARD)
        if record != forward and self._state.was_abandoned(dump.path, forward):
            raise Skip(SkipReason.FORWARD_FAILED)
        setup = self._setups.setup_for(dump.framework)
        call = self._layouts.chosen(dump, _read_call(dump, forward, record))
        if self._check.needs_golden:
            setup = replace(setup, raised_above=None)
        for feature in self._check.features:
            setup = feature.replay_config(setup, call.api)
        if standard is not None:
            from msprobe_standards import Policy

            setup = replace(setup, policy=Policy.of(standard))
        from pytest_msprobe.engine.replay.check import Replay

        replay = Replay(call, setup, recorded=self._recorded(dump))
        if replay.call.backward is not None:
            self._last = (dump, forward, replay)
        return replay


_checker_key = pytest.StashKey[Checker]()


def checker_of(config: pytest.Config) -> Checker:
    """Return the checker of this process."""
    if _checker_key not in config.stash:
        stash = config.stash
        stash[_checker_key] = Checker(stash[options_key], stash[check_key], stash[setups_key], stash[state_key])
    return config.stash[_checker_key]


def _read_call(dump: Dump, forward: str, record: str) -> Call:
    """Read the call for one of its records; a malformed record is that record's failure alone."""
    from pytest_msprobe.engine.replay.call import read_call

    try:
        return read_call(dump, forward)
    except RecordError as error:
        if error.path.startswith(record_path(record)):
            raise
        if record != forward:
            raise Skip(SkipReason.FORWARD_FAILED, str(error)) from None
        return read_call(dump, forward, with_backward=False)


class RecordItem(DumpItem):
    """The check of one API record."""

    runs_on_device = True

    def judge(self) -> DirectionResult:
        """Return the policy's verdict on the record."""
        return checker_of(self.config).check(self.dump, self.name)

    def tensor_files(self) -> list[Path]:
        """Return the files of the call's inputs, and of the baseline's tensors."""
        return checker_of(self.config).tensor_files(self.dump, self.name)

    def properties(self) -> list[tuple[str, str]]:
        """Return device, math modes and seed, why a verdict says little and how much of a result is left open."""
        extras = {} if self.result is None else self.result.extras
        remarks = {"little_judged": extras.get(LITTLE_JUDGED), "left_open": left_open_of(extras)}
        own = [(f"msprobe.{name}", str(value)) for name, value in remarks.items() if value]
        return [*own, *self.config.stash[setups_key].properties]

    def signature(self) -> Hashable | None:
        """Return the API and all inputs but the values of their tensors; None for a backward record."""
        key, direction = split_direction(self.name)
        if direction == "backward":
            return None
        try:
            body = self.dump.body(self.name)
            api = parse_api_name(self.name).qualified_api
            inputs = [body.get("input_args"), body.get("input_kwargs")]
        except (RecordError, ValueError, AttributeError):
            return None
        has_backward = api_record(key, "backward") in self.dump.records
        return api, has_backward, msgspec.json.encode(_without_values(inputs))


_TENSOR_VALUES = re.compile(r"Max|Min|Mean|Norm|(Max|Min)_except_inf_nan|md5|data_name|datapath")


def _without_values(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_values(item) for item in tree]
    if isinstance(tree, dict):
        is_tensor = "shape" in tree and "dtype" in tree
        return {
            key: _without_values(value)
            for key, value in tree.items()
            if not (is_tensor and _TENSOR_VALUES.fullmatch(key))
        }
    return tree


def checked_records(file: pytest.File, dump: Dump) -> Iterator[RecordItem]:
    """Return an item for each API record that is asked for; a call's backward item follows its forward item."""
    return RecordItem.deferred(file, preselect(file, dump, checked_names(dump)), dump=dump)


def checked_names(dump: Dump) -> Iterator[str]:
    """Yield the names of a dump's API records; a call's backward record follows its forward record."""
    records = dump.records
    for name in dump.api_names:
        key, direction = split_direction(name)
        if direction == "backward" and api_record(key, "forward") in records:
            continue
        yield name
        backward = api_record(key, "backward")
        if direction == "forward" and backward in records:
            yield backward
