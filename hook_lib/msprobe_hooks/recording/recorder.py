"""The recorder: what calls, modules and gradients report becomes records, in order, from all threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import msgspec

from msprobe_hooks.dump.communication.jsonl import Line
from msprobe_hooks.dump.tokens import PassTokens
from msprobe_hooks.errors import RecordingError, is_mistake
from msprobe_hooks.recording.backward import Inputs, Listener
from msprobe_hooks.recording.backward_passes import BackwardPasses
from msprobe_hooks.recording.checksums import ChecksumThread
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import ElementBuilder, Elements, TensorEntry
from msprobe_hooks.recording.filters import NameFilter
from msprobe_hooks.recording.flush_timer import FlushTimer
from msprobe_hooks.recording.fork_guard import abandon_in_children
from msprobe_hooks.recording.framework_protocol import Framework
from msprobe_hooks.recording.safety_net import SafetyNet
from msprobe_hooks.recording.stacks import Stack, StackTable
from msprobe_hooks.recording.summary import Count, Summary, described
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.recording.tensor_files import Destination, StepFiles, TensorFiles

_log = logging.getLogger("msprobe_hooks")


class Recorder(Framework):
    """One recording. Observers ask it for names, hand it records, and never see it raise.

    Calls are observed while it ``is_recording``; the gradients of what was observed are taken until the step's files
    are closed. What was recorded is in the files ``flush_seconds`` later, whatever the program does meanwhile. A
    failure to observe is counted in the summary with its reason; a failure to write stops the recording and is kept in
    ``failure``.
    """

    flush_seconds: ClassVar[float] = 2.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directions = settings.directions
        self.is_recording = False
        self.is_abandoned = False
        self.step = 0
        #: Counts the folders of steps: gradients of what was observed in an earlier one are not recorded.
        self.period = 0
        self._next_path = settings.dump_path
        self.summary = Summary()
        self.failure: RecordingError | None = None
        self.filter = NameFilter(settings.scope, settings.list, settings.exclude)
        self.lock = threading.RLock()
        self._places = _Places()
        self._files: StepFiles | None = None
        self._destination = Destination(settings)
        self._timer: FlushTimer | None = None
        self._counts: dict[str, int] = {}
        self._stacks = StackTable()
        #: What is put together until a backward pass ends.
        self.passes = BackwardPasses(self.engine)
        self.listener = Listener(self.passes.at_end, self.note_repeated, self.note_error)
        self._started = 0.0
        self._is_begun = False
        self.checksums = ChecksumThread()
        #: Entries of tensors whose numbers are still to come, by their ids.
        self._waiting: dict[int, tuple[TensorEntry, Statistics]] = {}
        self._keeps_all = settings.task == "tensor"
        self._has_stacks = settings.extra_info
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
        """Return what a record of this thread belongs to: the phase it is in, else the innermost module."""
        places = self._places
        return places.phase or (places.modules[-1] if places.modules else None)

    def enter_phase(self, phase: str | None) -> None:
        """Note that this thread is in the optimizer or clips gradients, or with None that it no longer is.

        Fused optimizers change parameters unnoticed, so all is measured anew.
        """
        self._places.phase = phase
        with self.net(phase or "the end of a phase"):
            self.forget()
            with self.lock:
                if phase is not None and self.settings.level == "mix" and self._files is not None:
                    self._files.add_phase(phase)

    @property
    def is_suspended(self) -> bool:
        """Return whether this thread is inside a call that is recorded as a whole."""
        return self._places.is_suspended

    @is_suspended.setter
    def is_suspended(self, value: bool) -> None:
        self._places.is_suspended = value

    def keeps(self, name: str) -> bool:
        """Return whether the tensors of a record are written to files."""
        parts = self.settings.tensor_list
        return self._keeps_all or (bool(parts) and any(part in name for part in parts))

    def elements(self, name: str) -> ElementBuilder:
        """Return a builder for the elements of a record."""
        return self.written_elements(name)

    def written_elements(self, name: str) -> Elements:
        """Return a builder for the elements of a record that is written as they are now."""
        if self.keeps(name):
            return self.elements_class(name, self.summarise, self.save)
        return self.elements_class(name, self.summarise, None, self.shared, self.copied)

    def has_met_non_finite(self) -> bool:
        """Return whether inf or nan was measured since this was last asked."""
        return False

    def is_stale(self, value: Any) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, though unchanged."""
        return False

    def fill(self, entry: TensorEntry, statistics: Statistics) -> None:
        """Fill a tensor's entry, now or, where numbers are still to come, when the files are written."""
        if statistics.is_waiting:
            self._waiting[id(entry)] = (entry, statistics)
        else:
            entry.fill(statistics)

    def copied(self, entry: TensorEntry) -> TensorEntry:
        """Return an entry like this one, which is filled when this one is."""
        with self.lock:
            copy = msgspec.structs.replace(entry)
            waiting = self._waiting.get(id(entry))
            if waiting is not None:
                self.fill(copy, waiting[1])
        return copy

    def fetch(self) -> None:
        """Fill the entries whose numbers were still to come."""
        by_id, self._waiting = self._waiting, {}
        waiting = by_id.values()
        if waiting:
            self.checksums.wait()
            self.fetch_numbers({id(statistics): statistics for _, statistics in waiting}.values())
            for entry, statistics in waiting:
                statistics.is_waiting = False
                entry.fill(statistics)
            self.checksums.check()

    def accepts_gradients(self, period: int) -> bool:
        """Return whether gradients of what was observed in a period are recorded, though calls may no longer be."""
        return period == self.period and self._files is not None

    @property
    def tensors(self) -> TensorFiles | None:
        """Return what writes tensors into the step's folder; None where none are written."""
        files = self._files
        return None if files is None else files.tensors

    # what observers hand over

    def emit(self, name: str, record: Any, parent: str | None, count: Count, frame: FrameType | None = None) -> None:
        """Add a record, to be counted as ``count``, with the stack of ``frame`` where one is given."""
        with self.lock:
            stack = self._stacks.stack(frame) if frame is not None and self._has_stacks else None
            self._add(name, record, parent, count, stack)

    def emit_of_lines(self, name: str, record: Any, parent: str | None, count: Count, lines: tuple[str, ...]) -> None:
        """Add a record of what runs without a stack of its own, with lines of the program in place of one."""
        with self.lock:
            stack = self._stacks.stack_of_lines(lines) if lines and self._has_stacks else None
            self._add(name, record, parent, count, stack)

    def log_communication(self, line: Line) -> None:
        """Write at once what happens to a communication, so that it is known of a process that is killed in it."""
        with self.lock:
            files = self._files
            if files is not None:
                self._or_fail(lambda: files.add_line(line))

    def note_tokens(self, tokens: PassTokens) -> None:
        """Write which tokens a forward pass has, where one is recorded."""
        with self.lock:
            files = self._files
            if files is not None and self.is_recording:
                self._or_fail(lambda: files.add_tokens(tokens))

    def watch_backward(self, name: str, parent: str | None, outputs: list[Any], inputs: Inputs, count: Count) -> None:
        """Write the backward record of a call when its gradients come by, and count it as ``count``."""
        if self.directions.backward and outputs:
            # There are as many of these as calls until the backward pass comes, and a closure is several objects.
            self.watch(outputs, inputs, partial(self._take_gradients, self.period, name, parent, count), name)

    def note_error(self, where: str, error: Exception) -> None:
        """Report what could not be observed, and why."""
        self.summary.note_error(where, error)

    def note_traced(self) -> None:
        """Count a call that a tracer or compiler made."""
        self.summary.traced += 1

    def net(self, where: str) -> SafetyNet:
        """Return a context in which what fails is reported as ``where`` and does not reach the program."""
        return SafetyNet(self.note_error, where)

    # life

    def start(self, rank: int | None) -> bool:
        """Turn recording on; False where step or rank are not wanted, or the dump could not be written.

        The first time in a folder, before anything is recorded into it, raises RecordingError where there is the dump
        of a former run, or a folder that cannot be written into. A disk that is full ends the recording instead, then
        as later.
        """
        if self.failure is not None:
            return False
        if self._next_path != self.settings.dump_path:
            self._change_folder()
        is_first, self._is_begun = not self._is_begun, True
        if is_first and not self._or_fail(lambda: self._destination.prepare(self.step, rank), is_first=True):
            return False
        wanted_steps, wanted_ranks = self.settings.step, self.settings.rank
        if wanted_steps is not None and self.step not in wanted_steps:
            self.summary.removed["step"] += 1
            return False
        if wanted_ranks is not None and rank not in wanted_ranks:
            self.summary.removed["rank"] += 1
            return False
        if self._files is None and not self._or_fail(lambda: self._open(rank), is_first=is_first):
            return False
        with self.net("the start of a recording"):
            # Nothing was looked at while recording was off.
            self.forget()
        if self._timer is None:
            with self.net("the thread that writes records at intervals"):
                self._timer = FlushTimer(self._flush_in_time, self.flush_seconds)
        self.summary.started = True
        self._started = time.monotonic()
        self.is_recording = True
        return True

    def record_into(self, dump_path: Path) -> None:
        """Record into another folder from the next start on."""
        self._next_path = dump_path

    def _change_folder(self) -> None:
        self.close_step(is_last=True)
        self._destination.close()
        self.settings = replace(self.settings, dump_path=self._next_path)
        self._destination = Destination(self.settings)
        self._is_begun = False

    def stop(self) -> None:
        """Observe no more calls and write what waits, tensors included; gradients of what was observed still come."""
        if not self.is_recording:
            return
        self.is_recording = False
        self.summary.seconds += time.monotonic() - self._started
        with self.lock:
            self._flush(with_stacks=True)
            files = self._files
        if files is not None:
            self._or_fail(files.wait)

    def next_step(self) -> None:
        """Close this step's files; counters restart and every tensor is measured anew."""
        self.stop()
        self.close_step()
        self.step += 1
        self.filter.restart()

    def close_step(self, *, is_last: bool = False) -> None:
        """Finish the files of the step; the last one's, where nothing was recorded after ``step``, are not kept."""
        with self.lock:
            self._flush(with_stacks=True)
            files, self._files = self._files, None
            self.period += 1
            self._counts.clear()
            self.passes.forget()
            with self.net("the end of a step"):
                self.forget()
        if files is not None:
            is_written = self._or_fail(files.close) and self.failure is None
            if is_written:
                self._or_fail(lambda: self._destination.deliver(files, self.step, self.summary, is_last=is_last))

    def close(self) -> Summary:
        """Stop, finish the files and return what was recorded."""
        self.stop()
        self.close_step(is_last=True)
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        self.checksums.close()
        self._destination.close()
        self.summary.removed.update(self.filter.removed)
        self.summary.unmatched = self.filter.unmatched()
        self.filter.removed.clear()
        return self.summary

    def fail(self, error: Exception) -> None:
        """End the recording, whose reason is reported once; the program goes on."""
        if self.failure is None:
            self.failure = error if isinstance(error, RecordingError) else RecordingError(described(error))
            self.summary.failure = str(self.failure)
            _log.error("recording stopped: %s", self.failure)
        self.is_recording = False
        files, self._files = self._files, None
        if files is not None:
            # Mostly, this fails for the same reason.
            with suppress(Exception):
                files.close()

    def abandon(self) -> None:
        """Abandon everything in a forked child: the files belong to the parent."""
        self.is_recording = False
        self.is_abandoned = True
        self.lock = threading.RLock()
        # The thread is the parent's as well.
        self._timer = None
        self.passes.abandon()
        files, self._files = self._files, None
        if files is not None:
            files.abandon()
        self._destination.abandon()

    # parts

    def _add(self, name: str, record: Any, parent: str | None, count: Count, stack: Stack | None) -> None:
        files = self._files
        if files is not None and files.add(name, record, parent, count, stack):
            self._flush()

    def _open(self, rank: int | None) -> None:
        self._files = self._destination.open(self.step, rank, self._files_in, self.summary)

    def _files_in(self, folder: Path) -> StepFiles:
        return StepFiles(folder, self.settings, self.framework, self.summary, self._stacks, self.open_files)

    def _flush(self, *, with_stacks: bool = False) -> None:
        files = self._files
        if files is not None:
            # A device that has failed reports it here first; the program will hear of it where it waits itself.
            with self.net("statistics on a device"), self.quiet():
                self.fetch()
            self._or_fail(lambda: files.flush(with_stacks=with_stacks))

    def _flush_in_time(self) -> None:
        """Write what waits, on the timer's thread."""
        with self.lock:
            files = self._files
            if files is None:
                return
            if self._waiting:
                # Numbers on a device are fetched by the program's threads alone: from another one that would wait for
                # what the device is doing, and would break the capture of a graph.
                files.is_due = True
            else:
                self._or_fail(lambda: files.flush(with_stacks=False))

    def _or_fail(self, write: Callable[[], None], *, is_first: bool = False) -> bool:
        """Write something; where that is not possible the recording ends, the program goes on, and this is False.

        What is written first of all raises RecordingError where the user can do something about it.
        """
        try:
            write()
        except Exception as error:
            if is_first and is_mistake(error):
                raise
            self.fail(error)
            return False
        return True

    def _take_gradients(
        self,
        period: int,
        name: str,
        parent: str | None,
        count: Count,
        grad_outputs: list[Any],
        grad_inputs: list[Any],
    ) -> None:
        if self.accepts_gradients(period):
            self._emit_backward(name, parent, grad_outputs, grad_inputs, count)
        elif period != self.period:
            self.summary.late += 1

    def _emit_backward(
        self, name: str, parent: str | None, grad_outputs: list[Any], grad_inputs: list[Any], count: Count
    ) -> None:
        if not self.filter.admits(name):
            return
        record: dict[str, Any] = {}
        with self.quiet():
            if self.settings.task != "structure":
                elements = self.elements(name)
                if self.directions.input:
                    record["input"] = elements.sequence(grad_outputs, "input")
                    elements.number_storages(record)
                if self.directions.output:
                    record["output"] = elements.sequence(grad_inputs, "output")
            self.emit(name, record, parent, count)

    def note_repeated(self) -> None:
        """Count a further backward pass through a call that was recorded."""
        if self._files is not None:
            self.summary.repeated += 1


class _Places(threading.local):
    """Where each thread is."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.phase: str | None = None
        self.is_suspended = False
