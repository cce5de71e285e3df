"""Context in which calls run in another precision, and a whole process whose calls do, to its end."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.fix.run_plan import Fixed, Left, Names, Plan, RunReport, claim, leave, read_plan
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.recording import validators
from msprobe_hooks.recording.session import Model, Observer, observing
from msprobe_hooks.recording.stacks import stack_of
from msprobe_hooks.recording.upcasts import PRECISIONS, NothingToRaiseError, Precision, UnraisedError

_log = logging.getLogger("msprobe_hooks")


@contextmanager
def fix(
    *names: str,
    to: Precision = "float32",
    framework: Framework = "pytorch",
    model: Model | None = None,
    custom_op_namespaces: Sequence[str] = (),
) -> Iterator[Fixed]:
    """Run the named calls in another precision, forward and backward, inside the context.

    Results come back in the dtype and on the device that the call would have had. The context's value counts the calls
    that were raised, and those that ran unchanged, with the reason; a warning at the end lists names that were never
    called.

    Args:
        names: Names of records: ``Torch.matmul`` for every call, ``Torch.matmul.3`` for one, counted from the start of
            the context, ``*`` for anything.
        to: ``float32`` and ``float64`` raise lower precisions; ``cpu`` also moves the call to the CPU, and needs a
            MindSpore that computes there.
        framework: ``pytorch`` or ``mindspore``.
        model: With MindSpore, the model whose cells' primitives are fixed too.
        custom_op_namespaces: Libraries whose operators are fixed too: ``mylib`` of ``torch.ops.mylib.swish``. A name
            such as ``torch.ops.mylib.swish`` adds its library.

    Raises:
        ConfigError: An argument is wrong.
    """
    if to not in PRECISIONS:
        raise ConfigError("to", to, ", ".join(PRECISIONS), known=PRECISIONS)
    chosen, fixed = Names(names, validators.names("custom_op_namespaces", custom_op_namespaces)), Fixed()
    if custom_op_namespaces and framework == "mindspore":
        raise ConfigError("custom_op_namespaces", custom_op_namespaces, "not supported with MindSpore")

    observers = _observers(framework, to, chosen, fixed, model)
    try:
        with observing(observers):
            yield fixed
    finally:
        fixed.unmet, fixed.seen = chosen.unmet, chosen.seen
        _log.log(logging.WARNING if fixed.unmet or not fixed.raised else logging.INFO, "%s", fixed)


def _observers(framework: Framework, to: Precision, chosen: Names, fixed: Fixed, model: Model | None) -> list[Observer]:
    def wanted(qualified: str, number: int, _: object) -> bool:
        return chosen.admit(qualified, number)

    require_framework(framework)
    if framework == "mindspore":
        from msprobe_hooks.extensions.fix.mindspore_functions import FixingFunctions

        return FixingFunctions(to, wanted, fixed, model).observers()
    from msprobe_hooks.extensions.fix.torch_mode import FixingMode

    return FixingMode(to, wanted, fixed, chosen.namespaces).observers()


def attach(folder: str, framework: str) -> None:
    """Follow the plan in the folder of a run for the calls of a framework, which is a package that was imported.

    Raises OSError or JsonError where there is none.
    """
    observers = _mindspore_observers if framework == "mindspore" else _torch_observers
    for observer in observers(read_plan(Path(folder)), _Process.of(folder)):
        observer.begin()


class _Process:
    """This process of a run: its plan, and the files that it writes."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._name, self._file = claim(self._folder)
        self._is_full = False

    @classmethod
    @functools.cache
    def of(cls, folder: str) -> _Process:
        """Return this process, which has one name whatever it imports."""
        return cls(folder)

    def write(self, report: RunReport) -> None:
        """Write one line; where the disk refuses one, none follows, and the program goes on."""
        if self._is_full:
            return
        try:
            # One system call, so that whatever ends the process leaves whole lines.
            self._file.write(msgspec.json.encode(report) + b"\n")
        except OSError as error:
            self._is_full = True
            _log.error("%s: cannot be written: %s; further calls are not listed", self._file.name, error.strerror)

    def write_call(self, qualified: str, number: int) -> None:
        """Write a call."""
        self.write(RunReport(f"{qualified}.{number}"))

    def report_left(self, left: Left) -> None:
        """Write that calls of an API run as they are; where the disk refuses it, the program goes on."""
        try:
            leave(self._folder, self._name, left)
        except OSError as error:
            _log.error("%s: cannot be written: %s; %s is not listed", self._folder, error.strerror, left.api)

    def raising(self, plan: Plan) -> Callable[[str, int, FrameType | None], bool]:
        """Return the function that decides whether a call is raised in this process."""
        raised = frozenset((plan.raised or {}).get(self._name, ()))

        def is_raised(qualified: str, number: int, frame: FrameType | None) -> bool:
            call = f"{qualified}.{number}"
            if call not in raised:
                return False
            if plan.reports_stacks:
                self.write(RunReport(call, stack_of(frame)))
            return True

        return is_raised


class _ReportedFixed(Fixed):
    """Reports each API once that is left as it is, though another precision could change its calls."""

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self._process = process

    def leave(self, qualified: str, reason: UnraisedError) -> None:
        """Count a call, and report the first one."""
        if not (isinstance(reason, NothingToRaiseError) or (qualified, str(reason)) in self.left):
            self._process.report_left(Left(qualified, str(reason)))
        super().leave(qualified, reason)


def _torch_observers(plan: Plan, process: _Process) -> list[Observer]:
    from msprobe_hooks.extensions.fix.torch_mode import FixingMode, ListingMode

    if plan.raised is None:
        return ListingMode(plan.to, process.write_call, _ReportedFixed(process), plan.custom_op_namespaces).observers()
    return FixingMode(plan.to, process.raising(plan), _ReportedFixed(process), plan.custom_op_namespaces).observers()


def _mindspore_observers(plan: Plan, process: _Process) -> list[Observer]:
    from msprobe_hooks.extensions.fix.mindspore_functions import FixingFunctions, ListingFunctions

    if plan.raised is None:
        return ListingFunctions(plan.to, process.write_call, _ReportedFixed(process)).observers()
    return FixingFunctions(plan.to, process.raising(plan), _ReportedFixed(process)).observers()
