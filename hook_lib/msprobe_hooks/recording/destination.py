"""Where the files of a recording's steps are written: below its folder, or into a spool folder step by step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msprobe_hooks.dump.paths.recording import recording_folder
from msprobe_hooks.dump.spool import Dropped
from msprobe_hooks.recording.spool_writer import Spool
from msprobe_hooks.recording.step_files import StepFiles, prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from msprobe_hooks.recording.config import Settings
    from msprobe_hooks.recording.summary import Summary

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
        """Give a step, whose files are closed, to the spool folder; one without records is nothing to check.

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
        taken = self._spool.take(step)
        if isinstance(taken, Dropped):
            if not summary.dropped:
                _log.warning("step %d is dropped: %s; the summary counts further ones", taken.step, taken.reason)
            summary.dropped[taken.reason] += 1
        else:
            summary.folders.append(taken)

    def close(self) -> None:
        """Close the spool folder, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def abandon(self) -> None:
        """Leave the spool folder to the parent of a forked child."""
        if self._spool is not None:
            self._spool.abandon()
