"""The recorder: what calls, modules and gradients report becomes records, in order, from all threads."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Protocol

from msprobe_hooks.dump.layout import recording_folder
from msprobe_hooks.dump.names import is_parameters_grad
from msprobe_hooks.dump.writer import DumpWriter
from msprobe_hooks.errors import RecordingError
from msprobe_hooks.recording.backward import Emit, Inputs
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import Elements
from msprobe_hooks.recording.filters import NameFilter
from msprobe_hooks.recording.processes import abandon_in_children
from msprobe_hooks.recording.stacks import StackTable
from msprobe_hooks.recording.summary import Count, Summary
from msprobe_hooks.recording.tensor_files import TensorFiles

_FLUSH_RECORDS = 1000
_FLUSH_SECONDS = 2.0


class Recorder(ABC):
    """One recording. Observers ask it for names, hand it records, and never see it raise.

    A failure to observe is counted in the summary with its reason; a failure to write stops the recording and is
    kept in ``failure``. A framework's recorder says how its tensors are looked at and how its backward pass ends.
    """

    framework: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directions = settings.directions
        self.is_recording = False
        self.is_abandoned = False
        self.step = 0
        self.summary = Summary()
        self.failure: RecordingError | None = None
        self.filter = NameFilter(settings.scope, settings.list)
        self.lock = threading.RLock()
        self._places = _Places()
        self._writer: DumpWriter | None = None
        self._files: TensorFiles | None = None
        self._counts: dict[str, int] = {}
        self._records: list[tuple[str, Any]] = []
        self._parents: list[tuple[str, str | None]] = []
        self._stacks = StackTable()
        self._unfinished: dict[int, dict[int, Finishing]] = {}
        self._flushed = 0.0
        self._started = 0.0
        abandon_in_children(self)

    # what observers ask

    def number(self, name: str) -> int:
        """Return how many calls of this name there were in this step, and count one more."""
        with self.lock:
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
        return count

    @property
    def modules(self) -> list[str]:
        """The forward names of the modules that this thread is in, outermost first."""
        return self._places.modules

    @property
    def parent(self) -> str | None:
        """What a record of this thread belongs to: the phase it is in, else the innermost module."""
        places = self._places
        return places.phase or (places.modules[-1] if places.modules else None)

    def enter_phase(self, phase: str | None) -> None:
        """Say that this thread is in the optimizer or clips gradients, or with None that it no longer is.

        Fused optimizers change parameters unnoticed, so all is measured anew.
        """
        self._places.phase = phase
        self.forget()
        if phase is not None and self.settings.level == "mix":
            with self.lock:
                self._parents.append((phase, None))

    @property
    def is_suspended(self) -> bool:
        """Whether this thread is inside a call that is recorded as a whole."""
        return self._places.is_suspended

    @is_suspended.setter
    def is_suspended(self, value: bool) -> None:
        self._places.is_suspended = value

    def keeps(self, name: str) -> bool:
        """Tell whether the tensors of a record are written to files."""
        if self._files is None:
            return False
        return self.settings.task == "tensor" or any(part in name for part in self.settings.tensor_list)

    # what a framework says

    @abstractmethod
    def elements(self, name: str) -> Elements:
        """Return a builder for the elements of a record."""

    @abstractmethod
    def quiet(self) -> AbstractContextManager[None]:
        """Return a context in which looking at tensors leaves no trace."""

    @abstractmethod
    def is_grad_enabled(self) -> bool:
        """Tell whether what is called now can be differentiated."""

    @abstractmethod
    def is_recompute(self, frame: FrameType | None) -> bool | None:
        """Tell whether a call is made by activation checkpointing; None where the framework does not say."""

    @abstractmethod
    def inputs(self, values: Any, awaited: Iterable[Any] = ()) -> Inputs:
        """Return where gradients leave a call for the tensors among its arguments.

        The record is complete when those of the ``awaited`` tensors were seen as well.
        """

    @abstractmethod
    def differentiated(self, values: Any) -> list[Any]:
        """Return the tensors among nested values that take a gradient."""

    @abstractmethod
    def watch(self, outputs: list[Any], inputs: Any, emit: Emit) -> None:
        """Have ``emit`` called with the gradients of a call's outputs and inputs when the backward pass goes by.

        ``outputs`` are those that take a gradient, ``inputs`` are this framework's.
        """

    @abstractmethod
    def forget(self) -> None:
        """Measure everything anew, as after a step."""

    @abstractmethod
    def fetch(self) -> None:
        """Bring numbers that are still on a device to the host."""

    @abstractmethod
    def open_files(self, folder: Path) -> TensorFiles:
        """Return what writes tensors into a folder."""

    @abstractmethod
    def backward_pass(self) -> int:
        """Return a number that this backward pass has to itself."""

    @abstractmethod
    def after_backward_pass(self, callback: Callable[[], None]) -> None:
        """Have a function called when the backward pass that is running ends."""

    def emit(self, name: str, record: dict[str, Any], parent: str | None, frame: FrameType | None = None) -> None:
        """Add a record, with the stack of ``frame`` where one is given."""
        with self.lock:
            if self.settings.task != "structure":
                self._records.append((name, record))
            if self.settings.level in ("L0", "mix") and not is_parameters_grad(name):
                self._parents.append((name, parent))
            if frame is not None and self.settings.extra_info:
                self._stacks.add(name, frame)
            if len(self._records) >= _FLUSH_RECORDS or time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self.flush()

    def watch_backward(self, name: str, parent: str | None, outputs: list[Any], inputs: Inputs, count: Count) -> None:
        """Have the backward record of a call written when its gradients come by, and counted as ``count``."""
        if not self.directions.backward or not outputs:
            return
        step = self.step

        def emit(grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
            if step == self.step and self.is_recording:
                self._emit_backward(name, parent, grad_outputs, grad_inputs, count)

        self.watch(outputs, inputs, emit)

    def note_raised(self, record: dict[str, Any], error: BaseException) -> None:
        """Let a record say what its call raised, and count it."""
        record["output"] = []
        record["exception"] = f"{type(error).__name__}: {error}"
        self.summary.raised += 1

    def note_error(self, where: str, error: Exception) -> None:
        """Count a failure to observe; the user's code goes on."""
        self.summary.errors[f"{where}: {type(error).__name__}: {error}".splitlines()[0]] += 1

    # life

    def start(self, rank: int | None) -> bool:
        """Turn recording on; False where step or rank are not wanted. Raises RecordingError where it cannot write."""
        wanted_steps, wanted_ranks = self.settings.step, self.settings.rank
        if wanted_steps is not None and self.step not in wanted_steps:
            self.summary.removed["step"] += 1
            return False
        if wanted_ranks is not None and rank not in wanted_ranks:
            self.summary.removed["rank"] += 1
            return False
        if self._writer is None:
            self._open(rank)
        self.summary.started = True
        self._started = self._flushed = time.monotonic()
        self.is_recording = True
        return True

    def stop(self) -> None:
        """Turn recording off and write what waits."""
        if not self.is_recording:
            return
        self.is_recording = False
        self.summary.seconds += time.monotonic() - self._started
        with self.lock:
            self.flush()

    def next_step(self) -> None:
        """Close this step's files; counters restart and every tensor is measured anew."""
        self.stop()
        self.close_step()
        self.step += 1
        self.filter.restart()

    def close_step(self) -> None:
        """Finish the files of the step."""
        with self.lock:
            self.flush(is_last=True)
            writer, self._writer = self._writer, None
            files, self._files = self._files, None
            self._counts.clear()
            self._unfinished.clear()
            self.forget()
        try:
            if files is not None:
                files.close()
                self.summary.bytes += files.bytes
        except RecordingError as error:
            self._fail(error)
        if writer is not None:
            self.summary.bytes += writer.size
            writer.close()

    def close(self) -> Summary:
        """Stop, finish the files and return what was recorded."""
        self.stop()
        self.close_step()
        self.summary.removed.update(self.filter.removed)
        self.filter.removed.clear()
        return self.summary

    def abandon(self) -> None:
        """Let go in a forked child: the files belong to the parent."""
        self.is_recording = False
        self.is_abandoned = True
        self.lock = threading.RLock()
        if self._writer is not None:
            self._writer.close()
        self._writer = self._files = None
        self._records.clear()

    def flush(self, is_last: bool = False) -> None:
        """Write what was recorded; the files are complete afterwards."""
        self._flushed = time.monotonic()
        writer = self._writer
        if writer is None:
            return
        try:
            with self.quiet():
                self.fetch()
            records, self._records = self._records, []
            parents, self._parents = self._parents, []
            writer.records(records)
            writer.parents(dict(parents).items())
            if is_last or self._stacks.is_full or not self.is_recording:
                writer.stacks(self._stacks.take())
        except RecordingError as error:
            self._fail(error)

    # parts

    def _open(self, rank: int | None) -> None:
        folder = self.settings.dump_path / recording_folder(self.step, rank)
        keeps = self.settings.keeps_tensors
        self._writer = DumpWriter(
            folder,
            framework=self.framework,
            task=self.settings.task,
            level=self.settings.level,
            keeps_tensors=keeps,
            extra_info=self.settings.extra_info and self.settings.level != "debug",
        )
        self._files = self.open_files(self._writer.tensor_folder) if keeps else None
        self.summary.folders.append(folder)

    def _fail(self, error: RecordingError) -> None:
        self.is_recording = False
        self.failure = self.failure or error
        self._records = []

    def _emit_backward(
        self, name: str, parent: str | None, grad_outputs: list[Any], grad_inputs: list[Any], count: Count
    ) -> None:
        try:
            if not self.filter.admits(name):
                return
            record: dict[str, Any] = {}
            if self.settings.task != "structure":
                with self.quiet():
                    elements = self.elements(name)
                    if self.directions.input:
                        record["input"] = elements.sequence(grad_outputs, "input")
                    if self.directions.output:
                        record["output"] = elements.sequence(grad_inputs, "output")
            self.summary.add(count)
            self.emit(name, record, parent)
        except Exception as error:
            self.note_error(name, error)

    def at_end_of_backward(self, waiting_one: Finishing) -> None:
        """Have something finished when the backward pass that is running ends, complete or not."""
        task = self.backward_pass()
        with self.lock:
            first = task not in self._unfinished
            waiting = self._unfinished.setdefault(task, {})
            waiting[id(waiting_one)] = waiting_one
        if first:
            self.after_backward_pass(lambda: self._end_of_backward(task))

    def note_repeated(self) -> None:
        """Count a further backward pass through a call that was recorded."""
        if self.is_recording:
            self.summary.repeated += 1

    def _end_of_backward(self, task: int) -> None:
        with self.lock:
            waiting = self._unfinished.pop(task, {})
        for waiting_one in waiting.values():
            waiting_one.finish()


class Finishing(Protocol):
    """Something that is put together during a backward pass."""

    def finish(self) -> None:
        """Write what came so far; a second time does nothing."""


class _Places(threading.local):
    """Where each thread is."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.phase: str | None = None
        self.is_suspended = False
