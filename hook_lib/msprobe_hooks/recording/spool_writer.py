"""A training's side of a spool folder: steps are written apart, and moved in when they are complete."""

from __future__ import annotations

import fcntl
import logging
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.dump.writer import (
    STOP_FILE,
    WRITING_FOLDER,
    Dropped,
    former_dump,
    make_folder,
    moving,
    note_dropped,
    size_of,
    waiting_steps,
    write_error,
)
from msprobe_hooks.errors import RecordingError
from msprobe_hooks.messages import format_size

# A choice: the training waits meanwhile, and the steps that it waits for take seconds to be checked.
_POLL_SECONDS = 0.2

_log = logging.getLogger("msprobe_hooks")


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """The most ``bytes`` of complete steps that lie in the folder, and for how many ``seconds`` a step waits for room.

    A step that finds none is dropped. 0 seconds drop it at once.
    """

    bytes: int
    seconds: float


class Spool:
    """Moves the steps of one process into a spool folder. Processes of other ranks may share the folder.

    Raises RecordingError where the folder cannot be written, has the stop file of a former run, or has a training that
    records the same rank.
    """

    def __init__(self, folder: Path, settings: SpoolSettings, rank: int | None) -> None:
        self._folder, self._settings, self._rank = folder, settings, rank
        self._has_room = True
        self._has_reported_waiting = False
        if (folder / STOP_FILE).exists():
            raise RecordingError(
                f"{folder / STOP_FILE}: this file closes the spool folder; remove it to record into the folder"
            )
        name = recording_folder(0, rank).name
        #: Where steps are written, in folders as those of any recording.
        self.writing = folder / WRITING_FOLDER / name
        make_folder(self.writing.parent)
        self._lock = _locked(self.writing.with_suffix(".lock"))
        # What a process that was killed left of its step.
        shutil.rmtree(self.writing, ignore_errors=True)
        make_folder(self.writing)

    def take(self, step: int) -> Path | Dropped:
        """Move a step, whose files are closed, into the folder, where there is room or in time will be.

        Returns its folder, or that it was dropped. Raises RecordingError where the disk refuses.
        """
        place = recording_folder(step, self._rank)
        try:
            size = size_of(self.writing / place)
            reason = self._move(place, size)
            if not reason:
                return self._folder / place
            dropped = Dropped(step, self._rank, size, reason)
            shutil.rmtree(self.writing / place.parent)
            note_dropped(self._folder, dropped)
        except OSError as error:
            raise RecordingError(f"{self._folder}: step {step} cannot be moved into it: {error.strerror}") from None
        return dropped

    def close(self) -> None:
        """Leave the folder to others."""
        shutil.rmtree(self.writing, ignore_errors=True)
        self._lock.close()

    def abandon(self) -> None:
        """Abandon everything in a forked child."""
        self._lock.close()

    def _move(self, place: Path, size: int) -> str:
        """Move a step in; return why it could not be, nothing where it was."""
        limit = self._settings.bytes
        if size > limit:
            return f"larger than spool_size ({format_size(limit)})"
        # Where one step waited in vain the next do not: nothing makes room, and the training must not stop.
        give_up = time.monotonic() + (self._settings.seconds if self._has_room else 0.0)
        while not (self._folder / STOP_FILE).exists():
            if self._move_if_room(place, size):
                self._has_room = True
                return ""
            if time.monotonic() >= give_up:
                self._has_room = False
                return f"the spool folder is full ({format_size(limit)})"
            self._report_waiting()
            time.sleep(_POLL_SECONDS)
        return f"the file {STOP_FILE!r} closes the spool folder"

    def _move_if_room(self, place: Path, size: int) -> bool:
        target = self._folder / place
        with moving(self._folder):
            if sum(size_of(step) for step in waiting_steps(self._folder)) + size > self._settings.bytes:
                return False
            if target.exists():
                raise former_dump(target)
            make_folder(target.parent)
            (self.writing / place).rename(target)
        with suppress(OSError):
            (self.writing / place).parent.rmdir()
        return True

    def _report_waiting(self) -> None:
        if not self._has_reported_waiting:
            self._has_reported_waiting = True
            _log.warning(
                "%s is full: step() waits for room, at most %g s, then the step is dropped; is pytest-msprobe follow "
                "running?",
                self._folder,
                self._settings.seconds,
            )


def _locked(path: Path) -> IO[str]:
    """Return a file that only this process has, until it is closed. Raises RecordingError."""
    try:
        lock = path.open("a")
    except OSError as error:
        raise write_error(path, "written", error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise RecordingError(
            f"{path}: another training records this rank into the spool folder; pass another folder"
        ) from None
    return lock
