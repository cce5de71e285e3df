"""Life of a recording as its session asks for it: steps, folders and files, from the start to the end."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from msprobe_hooks.errors import RecordingError, is_mistake
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.filters import NameFilter
from msprobe_hooks.recording.measuring import Measuring
from msprobe_hooks.recording.safety_net import SafetyNet
from msprobe_hooks.recording.stacks import StackTable
from msprobe_hooks.recording.summary import Summary, described
from msprobe_hooks.recording.tensor_files import Destination, StepFiles

_log = logging.getLogger("msprobe_hooks")

# Seconds. A choice: a write that takes longer is left to its thread, which is a daemon.
_LONGEST_WAIT = 1.0


class Lifecycle(Measuring):
    """A recording that is on while it ``is_recording``, and writes each step into a folder of its own.

    What was recorded is in the files ``flush_seconds`` later, whatever the program does meanwhile. A failure to write
    ends the recording and is kept in ``failure``.
    """

    flush_seconds: ClassVar[float] = 2.0

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.is_recording = False
        self.is_abandoned = False
        self.step = 0
        #: Counts the folders of steps: gradients of what was observed in an earlier one are not recorded.
        self.period = 0
        self._next_path = settings.dump_path
        self.summary = Summary()
        self.failure: RecordingError | None = None
        self.filter = NameFilter(settings.scope, settings.list, settings.exclude)
        self._files: StepFiles | None = None
        self._destination = Destination(settings)
        self._stacks = StackTable()
        self._timer: _FlushTimer | None = None
        self._started = 0.0
        self._is_begun = False

    @abstractmethod
    def restart(self) -> None:
        """Begin a step anew: nothing is counted yet, and no gradients are awaited."""

    def net(self, where: str) -> SafetyNet:
        """Return a context in which what fails is reported as ``where`` and does not reach the program."""
        return SafetyNet(self.note_error, where)

    def note_error(self, where: str, error: Exception) -> None:
        """Report what could not be observed, and why."""
        self.summary.note_error(where, error)

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
                self._timer = _FlushTimer(self._flush_in_time, self.flush_seconds)
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
            self.restart()
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
        files, self._files = self._files, None
        if files is not None:
            files.abandon()
        self._destination.abandon()

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


class _FlushTimer:
    """Calls a method each time so many ``seconds`` have passed, in a daemon thread, until ``end``.

    It holds no reference to the method's object, and ends with it.
    """

    def __init__(self, flush: Callable[[], None], seconds: float) -> None:
        """Start the thread. Raises RuntimeError where the system has none left, or the interpreter is ending."""
        self._flush = weakref.WeakMethod(flush)
        self._seconds = seconds
        # A plain lock: an event has one inside that a forked child could inherit locked.
        self._is_running = threading.Lock()
        self._is_running.acquire()
        self._thread = threading.Thread(target=self._run, name="msprobe flush timer", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, once a call that is being made has returned."""
        self._is_running.release()
        # A signal handler may end a recording while its own thread holds what that call waits for.
        self._thread.join(_LONGEST_WAIT)

    def _run(self) -> None:
        while not self._is_running.acquire(timeout=self._seconds):
            flush = self._flush()
            if flush is None:
                return
            flush()
            del flush
