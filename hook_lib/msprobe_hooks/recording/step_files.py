"""The files of one step and rank while the step runs: what waits to be written, and what was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msprobe_hooks.dump import tokens
from msprobe_hooks.dump.communication.jsonl import CommunicationLines, Line
from msprobe_hooks.dump.json_lines import JsonLines
from msprobe_hooks.dump.names import is_parameters_grad
from msprobe_hooks.dump.paths.recording import DEBUG_FILE, DUMP_FILE, recording_folder, step_rank
from msprobe_hooks.dump.writer import DumpWriter, former_dump, make_folder
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.stacks import Stack, StackTable
from msprobe_hooks.recording.summary import Count, Summary
from msprobe_hooks.recording.tensor_files import TensorFiles

# As many as after which msprobe writes; here they are appended, there the whole file is written anew.
_FLUSH_RECORDS = 1000
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

    def add(self, name: str, record: Any, parent: str | None, count: Count, stack: Stack | None) -> bool:
        """Take a record, to be counted as ``count``, with the stack that it was made on where one is given.

        Returns whether it is time to write what waits.
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
        return len(self._records) >= _FLUSH_RECORDS or self.is_due

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
        for name, _, count in records:
            if name not in refused:
                self._summary.add(count)
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
