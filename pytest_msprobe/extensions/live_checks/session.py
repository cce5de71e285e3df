"""Live checks of PyTorch as a context: a recorder of calls, and those that cannot be judged."""

from __future__ import annotations

import logging
import shlex
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.record import Framework
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.session import Model, Observer, observing
from msprobe_hooks.torch.apis import api_table
from msprobe_hooks.torch.call_mode import NewThreads, ThisThread
from msprobe_hooks.torch.elements import TorchElements
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.recording_mode import RecordingMode
from msprobe_hooks.torch.session import Operators, process_rank
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.framework_names import MINDSPORE
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.side import may_work_in_place
from pytest_msprobe.engine.replay.ops.lookup import operations
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.judge import Findings, Judge, NamedPolicy
from pytest_msprobe.extensions.live_checks.observed_call import on_cpu, one_at_a_time, outside_of_frameworks
from pytest_msprobe.extensions.live_checks.options import LiveOptions
from pytest_msprobe.extensions.live_checks.recorder import KeptElements, LiveRecorder
from pytest_msprobe.extensions.live_checks.scheduling import Selection, signature
from pytest_msprobe.journal import Header, JournalWriter
from pytest_msprobe.reports.github import first_of_several
from pytest_msprobe.reports.text import printable
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import PrecisionError, PrecisionWarning

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_msprobe.extensions.live_checks.options import LiveKeywords


class TorchKeptElements(KeptElements, TorchElements):
    """The elements of a record of PyTorch."""

    __slots__ = ()


class TorchLiveRecorder(LiveRecorder, TorchRecorder):
    """Has calls of PyTorch judged: its tensors are those that are judged."""

    kept_class = TorchKeptElements

    @classmethod
    def setup(cls, setup: ReplayConfig) -> ReplayConfig:
        """Return what its checks have in common, once torch has listed its operations.

        It filters warnings for it, after which Python gives again those that it gave once: better now than among those
        of the training.
        """
        operations()
        return setup

    def rank(self) -> int | None:
        """Return this process's rank."""
        return process_rank()

    def observers(self, _: Model | None) -> list[Observer]:
        """Return what sees calls on this thread and on those that begin, or on this one alone operators."""
        if self.settings.level == "aten":
            return [Operators(self)]
        mode = RecordingMode(self, api_table())
        return [ThisThread(mode), NewThreads(mode)]

    def kind(self, name: str, args: Any, kwargs: Any) -> Hashable:
        """Return what calls share that are alike, their modes among it."""
        modes = torch.is_grad_enabled(), torch._C._is_any_autocast_enabled()
        return signature(name, modes, args, kwargs, _looks)

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy on the CPU, laid out alike."""
        return on_cpu(tensor)

    def before(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arguments."""
        return args, kwargs

    def after(self, arguments: tuple[Any, Any], originals: tuple[Any, Any], output: Any, name: str) -> Any:
        """Return the output."""
        return output

    def gradients(self, gradients: Sequence[Any]) -> list[Tensor | None]:
        """Return the gradients."""
        return list(gradients)

    def obstacle(self, name: str, args: Any, kwargs: Any) -> str | None:
        """Return why a call with these arguments cannot be judged, None where it can."""
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "inside a transform of torch.func"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return "inside the capture of a CUDA graph"
        tensors = tensors_in((args, kwargs), Tensor)
        if any(tensor.is_inference() for tensor in tensors):
            # These do not say whether they were written to.
            operated = operation(parse_api_name(name).api)
            if may_work_in_place(operated, Arguments(args, kwargs, frozenset())):
                return "may write to a tensor of inference mode"
        return next(filter(None, map(_obstacle_of, tensors)), None)


def _looks(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        shape = () if value.is_nested else tuple(value.shape)
        return value.dtype, shape, value.requires_grad, value.device
    return value if isinstance(value, torch.dtype) else None


def _obstacle_of(tensor: Tensor) -> str | None:
    # A DTensor says of itself that it is an instance of Parameter.
    if type(tensor) not in (Tensor, Parameter):
        return f"takes a {type(tensor).__name__}"
    return None if tensor.device.type != "meta" else "on the device meta"


_log = logging.getLogger("pytest_msprobe")

_MOST_REPORTED = 10

# The options that a recording calls otherwise.
_OPTIONS = {"list": "apis", "exclude": "exclude"}


@contextmanager
def live(
    *, policy: str = "default", policy_level: str | None = None, **options: Unpack[LiveKeywords]
) -> Iterator[LiveChecks]:
    """Judge each call inside the ``with`` at once, with its real inputs, against the raised run on the CPU.

    What the code inside raises passes through.

    Args:
        policy: As ``--msprobe-policy``.
        policy_level: As ``--msprobe-level``.
        **options: The fields of `LiveOptions`.

    Yields:
        The checks and their results until now.

    Raises:
        ConfigError: An option cannot be used, or another live check is on.
        JournalError: The journal cannot be written.
        PrecisionError: A call is wrong, depending on ``on_failure``.
    """
    try:
        loaded = Policy.load(policy, policy_level)
    except (ValueError, OSError) as error:
        raise ConfigError("policy", policy, f"a policy ({error})") from None
    setup = ReplayConfig(CpuDevice(), loaded, TorchFramework(), memory="given")
    command = shlex.join(["python", *sys.argv])
    with judged_live({**options}, setup, NamedPolicy(policy, policy_level), command) as checks:
        yield checks
    checks.require_journal()
    if checks.on_failure == "fail" and checks.failed:
        first = first_of_several(checks.failed)
        raise PrecisionError(first, checks.rerun(first))


@contextmanager
def judged_live(
    keywords: dict[str, Any],
    setup: ReplayConfig,
    policy: NamedPolicy,
    command: str,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[LiveChecks]:
    """Judge the calls inside by ``setup``, with options by name; ``command`` runs them again.

    ``clock`` gives the seconds of which a share may be spent. Raises as `live`, but nothing at the end for what was
    found wrong.
    """
    options = _options(keywords)
    with one_at_a_time():
        checks = LiveChecks(options, setup, policy, command, clock)
        with checks.looking():
            yield checks


def _options(keywords: dict[str, Any]) -> LiveOptions:
    fields = LiveOptions.__dataclass_fields__
    for key, value in keywords.items():
        if key not in fields:
            raise ConfigError(key, value, f"one of the options policy, policy_level, {', '.join(fields)}")
    return LiveOptions(**keywords)


class LiveChecks:
    """The calls that are checked inside a ``with``, and their results."""

    def __init__(
        self, options: LiveOptions, setup: ReplayConfig, policy: NamedPolicy, command: str, clock: Callable[[], float]
    ) -> None:
        #: What becomes of wrong calls.
        self.on_failure = options.on_failure
        self._budget = Budget(options.share, clock)
        self._selection = Selection(options.sample, options.per_api, self._budget, options.seed)
        journal = None if options.journal is None else _new_journal(Path(options.journal), options, policy, command)
        self._findings = Findings(journal, options.saving(), policy, command)
        recorder_class = _recorder_of(options.framework)
        self._recorder = recorder_class(
            options.recording(),
            Judge(recorder_class.setup(setup), repeat=options.repeat),
            self._findings,
            self._selection,
            self._budget,
            self._react,
            options.waiting_bytes(),
        )
        self._observers = self._recorder.observers(options.model)

    @property
    def counts(self) -> Counter[str]:
        """Return how many records ended how: ``pass``, ``warn``, ``fail``, ``skip``."""
        return self._findings.counts

    @property
    def failed(self) -> list[DirectionResult]:
        """Return what is wrong, in the order in which it was found."""
        return self._findings.failed

    @property
    def skips(self) -> Counter[str]:
        """Return how many checked records got no verdict, by reason."""
        return self._findings.skips

    @property
    def left_out(self) -> Counter[str]:
        """Return how many calls, and gradients of calls, were not checked, by reason."""
        waiting = self._recorder.awaited - self._recorder.arrived
        filtered = self._recorder.summary.removed + self._recorder.filter.removed
        removed = {f"not asked for ({_OPTIONS[name]})": count for name, count in filtered.items()}
        never = {"no gradient came": waiting} if waiting else {}
        return Counter({**self._selection.left_out, **removed, **never, **self._recorder.summary.errors})

    @property
    def never_judged(self) -> list[str]:
        """The APIs that were called and have no verdict in a direction, as ``Functional.conv2d backward``.

        Where calls with other inputs have one, the number of kinds without follows, as ``(2 of 5 kinds)``.
        """
        return [str(kinds) for kinds in self._selection.never_judged()]

    @property
    def seconds(self) -> float:
        """The time that was spent on checks."""
        return self._budget.spent

    def rerun(self, result: DirectionResult) -> str:
        """Return the command that judges a failed record again."""
        return self._findings.rerun(result)

    def step(self) -> None:
        """Begin the next step: records are numbered anew, below ``step1`` ... in the journal."""
        recorder = self._recorder
        recorder.close_step()
        recorder.step += 1
        self._budget.begin_step()
        self._findings.place = recording_folder(recorder.step, recorder.rank())

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at the calls inside; at the end the journal is complete."""
        try:
            rank = self._recorder.rank()
            self._findings.place = recording_folder(0, rank)
            self._recorder.start(rank)
            with observing(self._observers):
                yield
        finally:
            self._recorder.close()
            self._add_rows_of_never_judged()
            self._findings.leave_out(self.left_out)
            self._findings.close()
            _log.log(logging.INFO if self.counts else logging.WARNING, "%s", self)

    def require_journal(self) -> None:
        """Raise JournalError where the journal was cut short."""
        if self._findings.failure is not None:
            raise self._findings.failure

    def __str__(self) -> str:
        # What was never judged has a line of its own, and was no record.
        records = {**self.counts, "skip": self.skips.total()}
        judged = ", ".join(f"{count} {outcome}" for outcome, count in records.items() if count) or "nothing"
        lines = [f"live check: {judged}, in {self.seconds:.1f} s"]
        lines += [f"  not judged: {count} {reason}" for reason, count in self.skips.most_common()]
        lines += [f"  left out: {count} {reason}" for reason, count in self.left_out.most_common()]
        never = self.never_judged
        lines += [f"  never judged: {first_names(never)}"] if never else []
        lines += [f"  {result.record}: {result.reason.partition(';')[0]}" for result in self.failed[:_MOST_REPORTED]]
        lines += [f"  and {len(self.failed) - _MOST_REPORTED} more failed"] if len(self.failed) > _MOST_REPORTED else []
        return "\n".join(lines)

    def _add_rows_of_never_judged(self) -> None:
        """Add what was not judged to the journal, for its reports."""
        for kinds in self._selection.never_judged():
            if not kinds.has_row:
                self._findings.skip(
                    recording_folder(kinds.step, self._recorder.rank()), kinds.record, kinds.some_of_all
                )

    def _react(self) -> None:
        """Raise or warn about what is wrong, where the training wants that while it runs."""
        for result, stack in self._findings.next_failures():
            if self.on_failure == "stop":
                raise PrecisionError(result, self.rerun(result))
            if self.on_failure == "warn":
                code, line = outside_of_frameworks(stack)[0]
                warning = PrecisionWarning(printable(f"{result.record}: {result.reason}"))
                warnings.warn_explicit(warning, None, code.co_filename, line)


def first_names(names: Sequence[str]) -> str:
    """Return the first ten of the names, and how many more there are."""
    more = [f"and {len(names) - _MOST_REPORTED} more"] if len(names) > _MOST_REPORTED else []
    return ", ".join([*names[:_MOST_REPORTED], *more])


def _recorder_of(framework: Framework) -> type[LiveRecorder]:
    if framework == MINDSPORE:
        from pytest_msprobe.extensions.live_checks.mindspore_recorder import MindSporeLiveRecorder

        return MindSporeLiveRecorder

    return TorchLiveRecorder


def _new_journal(path: Path, options: LiveOptions, policy: NamedPolicy, command: str) -> JournalWriter:
    if path.exists() and path.stat().st_size:
        raise JournalError("already exists", file=path, remedy="choose another name; each rank needs its own journal")
    level = {"level": policy.level} if policy.level else {}
    header = Header(
        dumps={},
        settings={"mode": "live", "policy": policy.name, **level, **options.choice_in_words()},
        root=str(Path.cwd()),
        rerun=tuple(shlex.split(command)),
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    return JournalWriter(path, header)
