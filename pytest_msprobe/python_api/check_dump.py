"""Checks from a program, in its process: of one call, or of the records of a dump one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from msprobe_hooks.dump.reader import Dump, open_dump
from msprobe_hooks.dump.recording_paths import find_dumps, home_of
from msprobe_hooks.messages import counted, naming_keywords
from pytest_msprobe.containment.process_state import ProcessState
from pytest_msprobe.containment.run_folder import RunFolder
from pytest_msprobe.containment.run_in_process import judge_in_process
from pytest_msprobe.devices.math_modes import MathMode
from pytest_msprobe.devices.registry import AUTO, DeviceRegistry, parse_device
from pytest_msprobe.engine.framework_names import checked_as
from pytest_msprobe.errors import DeviceError, OptionError, not_one_of
from pytest_msprobe.modes.check.dump_checks import dump_checks
from pytest_msprobe.modes.check.features import features_without_session
from pytest_msprobe.modes.check.items import Checker, checked_names
from pytest_msprobe.modes.check.mode import CheckMode, require_checkable
from pytest_msprobe.modes.check.options import CheckOptions
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.run.collection import is_listed
from pytest_msprobe.run.item import records_of_call
from pytest_msprobe.run.options import Level, Options, RealData, find_policy, patterns
from pytest_msprobe.run.setups import Setups

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from msprobe_standards import Policy
    from pytest_msprobe.devices.device import Device
    from pytest_msprobe.engine.replay.call import Call
    from pytest_msprobe.engine.replay.trials.config import ReplayOptions
    from pytest_msprobe.results.result import CallResult, DirectionResult


def check_call(
    call: Call, *, device: Device, policy: Policy | str = "default", **options: Unpack[ReplayOptions]
) -> CallResult:
    """Check both directions of a call on an active device.

    Args:
        call: The recorded call.
        device: An active device.
        policy: A policy, the name of a built-in one or the path of a file.
        **options: Other fields of `ReplayConfig`; without ``framework`` the call is PyTorch's.

    Returns:
        The results of the forward and, where it was recorded, the backward direction.

    Raises:
        DumpError: A tensor file of the dump is unusable.
    """
    from msprobe_standards import Policy
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from pytest_msprobe.engine.torch_framework import TorchFramework
    from pytest_msprobe.results.result import CallResult

    loaded = Policy.load(policy) if isinstance(policy, str) else policy
    options.setdefault("framework", TorchFramework())
    replay = Replay(call, ReplayConfig(device, loaded, **options))
    return CallResult(replay.forward(), replay.backward() if call.backward else None)


@dataclass
class Judgement:
    """One record as containment knows it: ``judge`` reaches the verdict on it."""

    name: str
    path: Path
    judge: Callable[[], DirectionResult]
    records: Callable[[], list[bytes]]

    @property
    def nodeid(self) -> str:
        """The record, with its dump."""
        return f"{self.path}::{self.name}"


@contextmanager
def process_state(setups: Setups) -> Iterator[ProcessState]:
    """Yield the state of this process for the time that records are judged in it."""
    folder = RunFolder.make()
    state = ProcessState(setups, None, folder)
    try:
        yield state
    finally:
        state.forget()
        state.close()
        folder.remove()


def judged(judgement: Judgement, state: ProcessState) -> DirectionResult:
    """Return what came of a record. Raises DeviceError where a record before it has broken the device."""
    if state.broken_device is not None:
        raise DeviceError(state.broken_device, remedy="check the other records in a new process")
    return judge_in_process(judgement, state)


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """The result of one record of a dump.

    Attributes:
        dump: The file of the dump.
        name: The record's name, such as ``Torch.mm.0.forward``.
        outcome: ``pass``, ``warn``, ``fail`` or ``skip``, or why the check did not finish, such as ``oom``.
        result: The verdict on each output, the measured numbers and the reason.
    """

    dump: Path
    name: str
    outcome: str
    result: DirectionResult

    def _repr_html_(self) -> str:
        return f"<p>{escape(one_line(f'{self.name}: {self.outcome}, {self.result.reason}'))}</p>"


_Record = TypeVar("_Record", bound=CheckedRecord)


class Records(Iterator[_Record]):
    """The records of a check or a comparison, each judged when it is asked for.

    Attributes:
        counts: How many came to each outcome so far; of what was taken nothing else is kept.
        total: How many there are.
    """

    def __init__(self, records: Iterator[_Record], total: int) -> None:
        self.counts: Counter[str] = Counter()
        self.total = total
        self._records = records

    def __next__(self) -> _Record:
        record = next(self._records)
        self.counts[record.outcome] += 1
        return record

    def __repr__(self) -> str:
        outcomes = "".join(f", {count} {outcome}" for outcome, count in self.counts.most_common())
        judged = f"{self.counts.total()} of {counted(self.total, 'record')} judged{outcomes}"
        others = "; a loop judges the others one at a time, pytest_msprobe.table(...) all of them"
        return judged + others * (self.counts.total() < self.total)

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"


@naming_keywords
def check_dump(
    path: Path | str,
    *,
    device: Device | str = AUTO,
    policy: str = "default",
    level: Level | None = None,
    seed: int = 0,
    only: str | Iterable[str] | None = None,
    real_data: RealData = "auto",
    math_mode: MathMode = "auto",
) -> Records[CheckedRecord]:
    """Check a ``dump.json``, or all below a folder, and give the result of each record in recorded order.

    Verdicts are those of ``pytest --msprobe-dump``. Each record is judged when it is asked for, in this process: a
    crash or a hang ends the program, which a run of pytest with ``-n`` or ``--msprobe-isolate`` survives. A record that
    cannot be judged is a failure of its own, and the others follow.

    Args:
        path: A ``dump.json`` or a folder.
        device: As ``--msprobe-device``, such as ``"npu:3"``, or a device of your own, which is known by its name.
        policy: As ``--msprobe-policy``.
        level: As ``--msprobe-level``.
        seed: The seed of the random inputs.
        only: Names or patterns of APIs, as ``"conv2d,Torch.linalg.*"`` or a list of them (default: all).
        real_data: ``"auto"`` to use recorded tensors where the dump has them, ``"never"`` for random ones.
        math_mode: ``"auto"`` to take the device's math modes into account, ``"strict"`` to judge by the dtype alone.

    Returns:
        An iterator of the results.

    Raises:
        DumpError: A file cannot be used.
        DeviceError: The device cannot be used, or a record has broken it.
        OptionError: Another argument cannot be used.
    """
    path = Path(path).absolute()
    dumps = [open_dump(file) for file in (find_dumps(path) if path.is_dir() else [path])]
    devices = DeviceRegistry()
    if not isinstance(device, str):
        devices.add(device)
        device = device.name
    choice = parse_device(device, devices)
    if choice.name != AUTO:
        devices.get(choice.name)
    options = Options(
        CheckMode(),
        (str(path),),
        choice,
        policy=find_policy(policy, Path.cwd(), "policy"),
        level=cast("Level | None", level and _allowed("level", level, Level)),
        seed=seed,
        real_data=_allowed("real_data", real_data, RealData),
        math_mode=_allowed("math_mode", math_mode, MathMode),
        only=patterns([only] if isinstance(only, str) else only or []),
    )
    check = CheckOptions(features=features_without_session().usual())
    require_checkable(dumps, check)
    names = [(dump, name) for dump in dumps for name in _names(dump) if is_listed(name, options)]
    if options.only and not names:
        raise OptionError(
            f"only={', '.join(options.only)!r}: no record matches",
            file=path,
            remedy="names are as in the dump, such as conv2d, Functional.conv2d or Torch.linalg.*",
        )
    setups = Setups(options, devices, "policy")
    for framework in dict.fromkeys(checked_as(dump) for dump, _ in names):
        setups.setup_for(framework)
    return Records(_checked(names, options, check, setups), len(names))


def _names(dump: Dump) -> Iterator[str]:
    check = dump_checks().of(dump)
    return checked_names(dump) if check is None else check.names(dump)


def _checked(
    names: Iterable[tuple[Dump, str]], options: Options, check: CheckOptions, setups: Setups
) -> Iterator[CheckedRecord]:
    with process_state(setups) as state:
        checker = Checker(options, check, setups, state)
        for dump, name in names:
            records = partial(records_of_call, dump, name)
            judgement = Judgement(name, dump.path, partial(_judge, checker, setups, dump, name), records)
            result = judged(judgement, state)
            yield CheckedRecord(home_of(dump.path), name, result.outcome, result)


def _judge(checker: Checker, setups: Setups, dump: Dump, name: str) -> DirectionResult:
    check = dump_checks().of(dump)
    return checker.check(dump, name) if check is None else check.judge(dump, name, setups.setup_for(checked_as(dump)))


def _allowed(name: str, value: Any, kind: Any) -> Any:
    """Return a value of a Literal. Raises OptionError for any other."""
    if value not in get_args(kind):
        raise OptionError(f"{name}={value!r}: {not_one_of(value, get_args(kind))}")
    return value
