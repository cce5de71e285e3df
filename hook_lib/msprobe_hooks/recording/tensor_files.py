"""Files of a recording's steps: tensors written by a background thread, and the folder that steps go to."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msprobe_hooks.dump import tokens
from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Line
from msprobe_hooks.dump.names import is_parameters_grad
from msprobe_hooks.dump.recording_paths import DEBUG_FILE, DUMP_FILE, recording_folder, step_rank
from msprobe_hooks.dump.writer import Dropped, DumpWriter, JsonLines, former_dump, make_folder
from msprobe_hooks.errors import DiskError
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.spool_writer import Spool
from msprobe_hooks.recording.stacks import Stack, StackTable
from msprobe_hooks.recording.summary import Count, Summary, described

# A choice: what copies may take of the host's memory while they wait; beyond it the program waits for the disk.
_WAITING_BYTES = 64 * 2**20


class TensorFiles(ABC):
    """Saves tensors as files of one folder. A save returns at once unless too much waits to be written.

    A framework says how a tensor is copied, measured and written. ``bytes`` counts what was written, ``refused`` are
    the names of tensors that no file can hold, with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._queue: queue.Queue[tuple[Callable[[], None], int] | None] = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        self._queued = 0
        self._held_up = 0
        self._failure: Exception | None = None
        self._is_closed = False
        self.refused: list[tuple[str, Exception]] = []
        self.bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="msprobe tensor files", daemon=True)
        self._thread.start()

    @abstractmethod
    def copy(self, tensor: Any) -> Any:
        """Return a copy that the program cannot change."""

    @abstractmethod
    def size(self, copy: Any) -> int:
        """Return how many bytes the values of a copy take."""

    @abstractmethod
    def write(self, copy: Any, path: Path) -> None:
        """Write a file. May raise what it will where that is not possible."""

    def save(self, tensor: Any, name: str) -> str:
        """Take a copy of a tensor, have it written and return what its record says of the file: the name.

        The caller has turned gradients and overrides off.
        """
        copy = self.copy(tensor)
        size = self.size(copy)
        self.queue(partial(self.attempt, partial(self.write, copy, self.folder / name), size, name), size)
        self.wait_for_room()
        return name

    def queue(self, write: Callable[[], None], size: int) -> None:
        """Queue a write of so many bytes for the thread, after all that was queued before.

        Once the files are closed nothing is written.
        """
        with self._room:
            if self._is_closed:
                return
            self._waiting += size
            self._queued += 1
            self._queue.put((write, size))

    def wait_for_room(self) -> None:
        """Wait while more bytes wait to be written than may, except those of a single write.

        The caller holds no lock: a signal handler that interrupts this wait may stop the recording.
        """
        if self._waiting <= _WAITING_BYTES:
            return
        with self._room:
            self._held_up += 1
            self._room.wait_for(lambda: self._queued <= 1 or self._waiting <= _WAITING_BYTES)
            self._held_up -= 1

    def holds_up(self, size: int) -> bool:
        """Return whether the program waits for room, or soon may: so much waits next to ``size`` bytes in the making.

        What the thread can leave out then costs the program time.
        """
        return self._held_up > 0 or self._waiting - size > _WAITING_BYTES // 2

    def flush(self, seconds: float = -1) -> None:  # noqa: B027
        """Hand over what waits to be written together with more; nothing does where each tensor has its own turn.

        ``seconds`` is how long this may wait for a save in another thread; a negative number sets no limit.
        """

    def wait(self) -> None:
        """Wait until everything is written. Raises DiskError where a file could not be."""
        self.flush()
        self._queue.join()
        self._check()

    def close(self) -> None:
        """Wait, and end the thread. Raises DiskError as ``wait`` does."""
        self.flush()
        with self._room:
            # What another thread saves from now on would wait for a thread that has ended.
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        self._check()

    def attempt(self, write: Callable[[], None], size: int, name: str) -> None:
        """Write in the thread. A disk that refuses ends all writing, any other failure is the matter of ``name``."""
        if self._failure is not None:
            return
        try:
            write()
            self.bytes += size
        except Exception as error:
            # torch reports a full disk as a plain RuntimeError; anything else is the tensor's own matter.
            if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, NotImplementedError):
                self._failure = error
            else:
                self.refused.append((name, error))
            # Half a file is worth nothing, and its room is.
            with suppress(OSError, ValueError):
                (self.folder / name).unlink()

    def _check(self) -> None:
        if self._failure is not None:
            raise DiskError(f"{self.folder}: a tensor cannot be written: {described(self._failure)}")

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            write, size = item
            try:
                write()
            except Exception as error:
                # The program waits for this thread.
                self._failure = self._failure or error
            # What a copy takes is free again before the next one is waited for.
            del item, write
            with self._room:
                self._waiting -= size
                self._queued -= 1
                self._room.notify_all()
            self._queue.task_done()
        self._queue.task_done()


# As many as after which msprobe writes; here they are appended, there the whole file is written anew.
_FLUSH_RECORDS = 1000
# Tensors whose numbers may stay on a device until a step ends: 50 MB, as memory is handed out there.
_MOST_ON_DEVICE = 1 << 15
# A choice: the caller holds the recorder's lock. A signal handler that has interrupted a save may wait for it.
_MOST_SECONDS = 1.0


def prepare(settings: Settings, first_step: int, rank: int | None) -> None:
    """Make the folder of a recording.

    Raises RecordingError where that is not possible, or a step that is to be recorded has a dump there already.
    """
    make_folder(settings.dump_path)
    ranks = recording_folder(0, rank).name
    file = DEBUG_FILE if settings.level == "debug" else DUMP_FILE
    for former in sorted(settings.dump_path.glob(f"step*/{ranks}/{file}")):
        step = step_rank(former).step
        if step is not None and step >= first_step and (not settings.step or step in settings.step):
            raise former_dump(former)


class StepFiles:
    """``dump.json``, ``stack.json``, ``construct.json``, the lines next to them and the tensors of one step.

    ``tensors`` is None where none are kept. The summary counts a record once it is in the file.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        framework: str,
        summary: Summary,
        stacks: StackTable,
        open_tensors: Callable[[Path], TensorFiles],
    ) -> None:
        """Create the files. Raises RecordingError where they exist or cannot be written."""
        self.folder = folder
        self._writer = DumpWriter(
            folder,
            framework=framework,
            task=settings.task,
            level=settings.level,
            keeps_tensors=settings.keeps_tensors,
            extra_info=settings.extra_info and settings.level != "debug",
        )
        # What only writes some calls says nothing of who waited for whom.
        is_whole = settings.task in ("statistics", "tensor", "structure") and settings.level != "debug"
        self._communication = CommunicationLines(folder) if is_whole else None
        self._tokens = JsonLines(folder / tokens.FILE)
        try:
            self.tensors = open_tensors(self._writer.tensor_folder) if settings.keeps_tensors else None
        except Exception:
            self._close()
            self.remove()
            raise
        self._has_values = settings.task != "structure"
        self._has_parents = settings.level in ("L0", "mix")
        self._has_stacks = settings.extra_info
        self._summary = summary
        self._stacks = stacks
        self._records: list[tuple[str, Any, Count]] = []
        self._has_records = self._has_lines = False
        self._parents: list[tuple[str, str | None]] = []
        #: Set to have the next record write what waits.
        self.is_due = False

    @property
    def is_empty(self) -> bool:
        """Return whether no record was ever taken."""
        return not self._has_records

    @property
    def has_lines(self) -> bool:
        """Return whether a communication has begun."""
        return self._has_lines

    def add(self, name: str, record: Any, parent: str | None, count: Count, stack: Stack | None, waiting: int) -> bool:
        """Take a record, to be counted as ``count``, with the stack that it was made on where one is given.

        Returns whether it is time to write what waits. Where numbers of ``waiting`` tensors are still on a device, it
        is later, so that the program waits for the device when the step ends.
        """
        self._has_records = True
        if self._has_values:
            self._records.append((name, record, count))
        else:
            self._summary.add(count)
        if self._has_parents and not is_parameters_grad(name):
            self._parents.append((name, parent))
        if stack is not None and self._has_stacks:
            self._stacks.add(name, stack)
        return self.is_due or (len(self._records) >= _FLUSH_RECORDS and not 0 < waiting < _MOST_ON_DEVICE)

    def add_line(self, line: Line) -> None:
        """Write at once what happens to a communication. Raises RecordingError where the disk refuses."""
        self._has_lines = True
        if self._communication is not None:
            self._communication.write(line)

    def add_tokens(self, line: tokens.PassTokens) -> None:
        """Write at once which tokens a forward pass has. Raises RecordingError where the disk refuses."""
        self._tokens.write(line)

    def add_phase(self, phase: str) -> None:
        """Note a phase, which records may have as their parent."""
        self._parents.append((phase, None))

    def flush(self, *, with_stacks: bool) -> None:
        """Write what waits; the files are complete afterwards, with the stacks where they are asked for or many.

        A record that cannot be put into JSON costs itself. Raises RecordingError where the disk refuses.
        """
        self.is_due = False
        records, self._records = self._records, []
        parents, self._parents = self._parents, []
        if self.tensors is not None:
            self.tensors.flush(_MOST_SECONDS)
        refused = dict(self._writer.records((name, record) for name, record, _ in records))
        for count, number in Counter(count for name, _, count in records if name not in refused).items():
            self._summary.add(count, number)
        self._writer.parents(dict(parents).items())
        if with_stacks or self._stacks.is_full:
            self._writer.stacks(self._stacks.take())
        for name, error in refused.items():
            self._summary.note_error(name, error)

    def wait(self) -> None:
        """Wait until the tensors are written. Raises RecordingError where one could not be."""
        if self.tensors is not None:
            self.tensors.wait()

    def close(self) -> None:
        """Close what was written. Raises RecordingError where a tensor could not be written."""
        self._summary.bytes += self._writer.size
        self._close()
        if self.tensors is not None:
            try:
                self.tensors.close()
            finally:
                self._summary.bytes += self.tensors.bytes
                for name, error in self.tensors.refused:
                    self._summary.note_error(name, error)

    def remove(self) -> None:
        """Take the files away again, closed and with no record in them, and the folders that were made for them."""
        if self._communication is not None:
            self._communication.remove()
        self._tokens.remove()
        self._writer.remove()

    def abandon(self) -> None:
        """Close without writing."""
        self._close()

    def _close(self) -> None:
        self._writer.close()
        self._tokens.close()
        if self._communication is not None:
            self._communication.close()


_log = logging.getLogger("msprobe_hooks")


class Destination:
    """The folders of one recording. A summary lists those that are written, and counts the steps that are dropped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spool: Spool | None = None

    def prepare(self, step: int, rank: int | None) -> None:
        """Make what all steps need. Raises RecordingError for the dump of a former run, or a folder without access."""
        prepare(self._settings, step, rank)
        if self._settings.spool is not None:
            self._spool = Spool(self._settings.dump_path, self._settings.spool, rank)

    def open(self, step: int, rank: int | None, open_files: Callable[[Path], StepFiles], summary: Summary) -> StepFiles:
        """Return the files of a step, which ``open_files`` makes in the step's folder."""
        root = self._settings.dump_path if self._spool is None else self._spool.writing
        folder = root / recording_folder(step, rank)
        files = open_files(folder)
        if self._spool is None:
            summary.folders.append(folder)
        return files

    def deliver(self, files: StepFiles, step: int, summary: Summary, *, is_last: bool) -> None:
        """Move a step, whose files are closed, to the spool folder; one without records is nothing to check.

        Without a spool folder the last step, which a loop that ends in ``step`` begins, is removed where it is empty.
        A recording of nothing keeps its only step.
        """
        if self._spool is None:
            earlier = any(self._settings.dump_path in folder.parents for folder in summary.folders[:-1])
            if is_last and earlier and files.is_empty and not files.has_lines:
                files.remove()
                summary.folders.remove(files.folder)
            return
        if files.is_empty:
            files.remove()
            return
        delivery = self._spool.take(step)
        if isinstance(delivery, Dropped):
            if not summary.dropped:
                _log.warning("step %d is dropped: %s; the summary counts further ones", delivery.step, delivery.reason)
            summary.dropped[delivery.reason] += 1
        else:
            summary.folders.append(delivery)

    def close(self) -> None:
        """Close the spool folder, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def abandon(self) -> None:
        """Leave the spool folder to the parent of a forked child."""
        if self._spool is not None:
            self._spool.abandon()
