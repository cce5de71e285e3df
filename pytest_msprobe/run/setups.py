"""What a process that runs items holds: its active device, its policy and the call that it last replayed."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from msprobe_hooks.dump.names import Direction, parse_api_name
from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import RecordError
from msprobe_standards.verdict import Verdict
from pytest_msprobe.containment.last_words import LastWords
from pytest_msprobe.containment.process import offer_to_oom_killer
from pytest_msprobe.containment.room import Room
from pytest_msprobe.containment.run_folder import RunFolder, run_folder_key
from pytest_msprobe.devices.device import DeviceError
from pytest_msprobe.devices.registry import DeviceRegistry, activate
from pytest_msprobe.engine.frameworks.registry import PYTORCH, framework_named
from pytest_msprobe.journal.file import fingerprint
from pytest_msprobe.modes.check.baselines.file import Baseline, BaselineError, read_baseline
from pytest_msprobe.modes.check.baselines.folder import tensors_folder
from pytest_msprobe.results.result import DirectionResult, Start, broken
from pytest_msprobe.results.skips import Skip, SkipReason

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.containment.admission import Admission
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.engine.replay.check import JudgeForward, Replay
    from pytest_msprobe.engine.replay.trial import Setup
    from pytest_msprobe.modes.check.baselines.result import RecordedResult
    from pytest_msprobe.modes.check.explore.options import ExploreOptions
    from pytest_msprobe.run.options import Options


class Worker:
    """Runs checks in this process. Nothing heavy is loaded before the first of them."""

    def __init__(self, config: pytest.Config, options: Options, devices: DeviceRegistry) -> None:
        workerinput = getattr(config, "workerinput", {})
        self._config = config
        self._options = options
        self._devices = devices
        self._slot = int(workerinput.get("msprobe_slot", 0))
        self._processes = int(workerinput.get("workercount", 1))
        self._setups: dict[str, Setup] = {}
        #: The frameworks of the dumps that this run checks.
        self.frameworks: tuple[str, ...] = (PYTORCH,)
        self._fingerprints: dict[Path, str] = {}
        self._last: tuple[Dump, str, Replay] | None = None
        self._is_introduced = False
        #: The name under which this process, or the child that runs its items, has files in the run's folder.
        self.name = str(workerinput.get("workerid", "main"))
        #: Whether somebody starts another process in place of this one when it dies.
        self.is_replaceable = bool(workerinput)
        #: Why the device can no longer be used, once that is known.
        self.broken_device: str | None = None

    def check(self, dump: Dump, record: str, judge: JudgeForward | None = None) -> DirectionResult:
        """Check one record; the other direction of the same call is remembered where it came just before.

        A forward record may have another judge than the policy. Raises DumpError where the record is malformed or a
        tensor file is unusable.
        """
        try:
            replay = self._replay(dump, record)
            direction = parse_api_name(record).direction
            try:
                return replay.forward(judge) if judge is not None else self._judge(dump, replay, direction)
            finally:
                if direction == "backward" or replay.call.backward is None:
                    self.forget()
        except Skip as skip:
            return DirectionResult(record, Verdict("skip", "", str(skip)), skip=skip.reason)
        except BaselineError as error:
            return broken(record, "baseline", str(error))

    def _judge(self, dump: Dump, replay: Replay, direction: Direction) -> DirectionResult:
        """Let the policy judge a direction; keep what fails and try inputs around it, where that is wanted."""
        started = time.monotonic()
        result = replay.judge(direction)
        if result.verdict.standard == "oom":
            # There is no memory to work with; the item may be tried again.
            return result
        if self._options.save_baseline_tensors is not None:
            from pytest_msprobe.modes.check.baselines.keeping import keep_tensors

            kept = keep_tensors(replay, result, self._fingerprint(dump), self._options.save_baseline_tensors)
            result = replace(result, kept=kept)
        if self._options.save is not None and result.verdict.outcome == "fail":
            result = self._saved(dump, replay, result)
        if self._options.explore is not None and result.verdict.outcome != "skip":
            options = self._options.explore.within(self._options.timeout, time.monotonic() - started)
            result = self._explored(dump, replay, result, options)
        return result

    def _saved(self, dump: Dump, replay: Replay, result: DirectionResult, body: bytes | None = None) -> DirectionResult:
        """Save a failing result's case and say so; ``body`` is the forward record of an explored input."""
        if self._options.save is None:
            return result
        from pytest_msprobe.modes.check.cases.saving import origin_of, save_case

        origin = origin_of(dump, result.record, self._options.policy, self._options.level, explored=body)
        return replace(result, saved=(*result.saved, save_case(replay, result, origin, self._options.save)))

    def _explored(
        self, dump: Dump, replay: Replay, recorded: DirectionResult, options: ExploreOptions
    ) -> DirectionResult:
        """Try inputs around the recorded one; the result is that of one that fails, where the recorded one does not."""
        from pytest_msprobe.modes.check.explore.exploring import explore
        from pytest_msprobe.modes.check.explore.snippet import explored_text

        body = msgspec.json.decode(dump.records[replay.call.forward.name])
        exploration = explore(replay, body, recorded, options)
        found = exploration.finding
        if found is None:
            return replace(recorded, explored=exploration.judged)
        failed = recorded.verdict.outcome == "fail"
        note = explored_text(found.replay, found.result, exploration.judged, recorded_failed=failed)
        result = replace(recorded if failed else found.result, notes=(note,), explored=exploration.judged)
        saved = self._saved(dump, found.replay, replace(found.result, notes=(note,)), found.body).saved
        return replace(result, saved=(*result.saved, *saved))

    def forget(self) -> None:
        """Drop the remembered call and its tensors."""
        self._last = None
        if "_admission" in vars(self) and self._admission is not None:
            self._admission.leave()

    def abandon(self, dump: Dump, record: str) -> None:
        """Give up a record that did not end; after a forward one, its backward record is not tried."""
        self.forget()
        if self._folder is not None:
            self._folder.post("abandoned", dump.path, record)

    def make_space(self) -> None:
        """Give back all memory that is kept for later, on the CPU and on the card."""
        self.forget()
        gc.collect()
        if self.has_started:
            from pytest_msprobe.devices.health import release_memory

            for setup in self._setups.values():
                release_memory(setup.device)

    def probe(self) -> None:
        """Find out whether the device still works, after an item that may have broken it."""
        from pytest_msprobe.devices.health import failed_probe

        for setup in self._setups.values():
            if (error := failed_probe(setup.device)) is not None:
                self.broken_device = f"device {self.start.device} no longer works: {error}"

    @property
    def has_started(self) -> bool:
        """Whether the device has been activated in this process."""
        return bool(self._setups)

    @functools.cached_property
    def start(self) -> Start:
        """What this process runs items on, as it was before the first of them."""
        if not self._setups:
            for framework in self.frameworks:
                self.setup_for(framework)
        setups = list(self._setups.values())
        described = "; ".join(setup.framework.describe(setup.device) for setup in setups)
        modes = {name: mode for setup in setups for name, mode in setup.framework.math_modes(setup.device).items()}
        return Start(f"{setups[0].device.name}:{self._index}", described, modes)

    def introduce(self) -> Start | None:
        """Return ``start`` once, when the device has been activated; None before and after."""
        if self._is_introduced or not (self.has_started or "start" in vars(self)):
            return None
        self._is_introduced = True
        return self.start

    def stand_for(self, start: Start) -> None:
        """Take what a child of this process has started for one's own."""
        self.start = start

    @functools.cached_property
    def last_words(self) -> LastWords | None:
        """Where the stderr of an item is kept; None in a run without dumps."""
        return None if self._folder is None else LastWords(self._folder.last_words(self.name))

    def prepare_to_die(self) -> None:
        """Have whoever replaces this process told of its end, by Python's report of a fatal signal too."""
        self.is_replaceable = True
        offer_to_oom_killer()
        if self.last_words is not None:
            self.last_words.take_fatal_errors()

    @functools.cached_property
    def room(self) -> Room:
        """Where the run's items run together, or one alone."""
        return Room(self._config.stash[run_folder_key].path, self.make_space)

    @property
    def _folder(self) -> RunFolder | None:
        return self._config.stash.get(run_folder_key, None)

    @functools.cached_property
    def _admission(self) -> Admission | None:
        from pytest_msprobe.containment.admission import Admission

        return None if self._folder is None else Admission(self._folder.path, self.name)

    def setup_for(self, framework: str) -> Setup:
        """Return the active device, the policy and the references for the calls of a framework.

        Raises DeviceError where the device or the framework cannot be used, pytest.UsageError where the policy cannot.
        """
        if framework not in self._setups:
            self._setups[framework] = self._set_up(framework)
        return self._setups[framework]

    def _set_up(self, framework_name: str) -> Setup:
        torch = import_torch()
        if self._processes > 1:
            torch.set_num_threads(max(1, _cpu_count() // self._processes))

        from msprobe_standards import Policy, register_standard
        from pytest_msprobe.engine.replay.references.registry import ReferenceRegistry
        from pytest_msprobe.engine.replay.trial import Setup

        options, hook = self._options, self._config.hook
        references = ReferenceRegistry()
        hook.pytest_msprobe_register_references(registry=references)
        hook.pytest_msprobe_register_standards(registry=SimpleNamespace(add=register_standard))
        try:
            policy = Policy.load(options.policy, level=options.level)
        except ValueError as error:
            raise pytest.UsageError(f"--msprobe-policy: {error}") from None
        from pytest_msprobe.engine.replay.memory import admit_at_once

        framework = framework_named(framework_name)
        device = framework.device(self._devices, options.device.name)
        self._index = activate(device, options.device, self._slot)
        return Setup(
            device=device,
            policy=policy,
            references=references,
            seed=options.seed,
            real_data=options.real_data == "auto",
            admit=admit_at_once if self._admission is None else self._admission.admit,
            measure_all=options.csv is not None or options.save_baseline is not None,
            framework=framework,
        )

    @functools.cached_property
    def _baseline(self) -> Baseline | None:
        path = self._options.baseline
        return None if path is None else read_baseline(path)

    def _recorded(self, dump: Dump) -> Callable[[str], RecordedResult] | None:
        baseline = self._baseline
        if baseline is None:
            return None
        from pytest_msprobe.modes.check.baselines.result import RecordedResult

        digest, folder = self._fingerprint(dump), tensors_folder(baseline.path)
        return lambda record: RecordedResult(baseline.row(digest, record), folder)

    def _fingerprint(self, dump: Dump) -> str:
        if dump.path not in self._fingerprints:
            self._fingerprints[dump.path] = fingerprint(dump.path)
        return self._fingerprints[dump.path]

    def _replay(self, dump: Dump, record: str) -> Replay:
        try:
            forward = parse_api_name(record).forward
        except ValueError as error:
            raise RecordError(record_path(record), str(error)) from None
        if self._last is not None and self._last[0] is dump and self._last[1] == forward:
            return self._last[2]
        self.forget()
        if forward not in dump.records:
            raise Skip(SkipReason.NO_FORWARD)
        if record != forward and self._folder and self._folder.is_posted("abandoned", dump.path, forward):
            raise Skip(SkipReason.FORWARD_FAILED)
        setup = self.setup_for(dump.framework)
        from pytest_msprobe.engine.replay.check import Replay

        replay = Replay(_read_call(dump, forward, record), setup, recorded=self._recorded(dump))
        if replay.call.backward is not None:
            self._last = (dump, forward, replay)
        return replay


worker_key = pytest.StashKey[Worker]()


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


def import_torch() -> ModuleType:
    """Import torch in the way that suits checks. Raises DeviceError where it cannot be imported."""
    # torch reads this once. Huge pages halve the time of large records, half of which is page faults without them.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # torch makes 165 000 objects that live as long as the process: collecting them is wasted, now and later.
    collects = gc.isenabled()
    gc.disable()
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"torch cannot be imported: {error}; install torch, or, where a device extension is at fault, "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        ) from error
    finally:
        if collects:
            gc.enable()
    gc.freeze()
    return torch


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
