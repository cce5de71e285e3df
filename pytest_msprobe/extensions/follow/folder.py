"""The reading side of a spool folder: steps are taken out of it, and the latest of those that failed are kept."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from msprobe_hooks.dump.writer import STOP_FILE, linked_steps, moving, size_of, waiting_steps
from pytest_msprobe.errors import FolderError

FAILED_FOLDER = "failed"
#: What pytest printed of a step that failed, next to its dump.
OUTPUT_FILE = "pytest.txt"

_OWN_FOLDER = ".follow"


@dataclass(frozen=True, slots=True)
class FailedLimits:
    """Number of failed steps that are kept, and bytes that they may take; the last one is kept whatever its size."""

    steps: int
    bytes: int


class SpoolFolder:
    """A spool folder, locked by one process until it is closed.

    Raises FolderError where it is not a directory, cannot be written, has a link where files are written, or another
    process follows it.
    """

    def __init__(self, path: Path, limits: FailedLimits) -> None:
        if not path.is_dir():
            raise FolderError("not a directory", file=path, remedy="pass the dump_path of a recording with spool_size")
        #: For what belongs to this process alone.
        self.own = path / _OWN_FOLDER
        self._path, self._limits = path, limits
        try:
            self.own.mkdir(exist_ok=True)
            for folder in (self.own, path / FAILED_FOLDER):
                _refuse_link(folder)
            self._lock = os.open(self.own / "lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FolderError(f"cannot be written: {error.strerror}", file=path) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise FolderError(
                "another pytest-msprobe follow uses this folder", file=path, remedy="wait until it ends, or stop it"
            ) from None
        # What a killed process had begun to remove.
        if self._removed.is_symlink():
            self._removed.unlink()
        shutil.rmtree(self._removed, ignore_errors=True)

    @property
    def is_closed_to_steps(self) -> bool:
        """Return whether there is the stop file, so that no more steps come."""
        return (self._path / STOP_FILE).exists()

    def waiting(self) -> list[Path]:
        """Return the folders of complete steps, the first one first."""
        return waiting_steps(self._path)

    def linked(self) -> list[Path]:
        """Return the folders of steps that are links, which are left alone."""
        return linked_steps(self._path)

    def place_of_failed(self, step: Path) -> Path:
        """Return where a step is kept that failed."""
        return self._path / FAILED_FOLDER / step.relative_to(self._path)

    def remove(self, step: Path) -> None:
        """Take a step out of the folder, for good."""
        with moving(self._path):
            step.rename(self._removed)
            _remove_if_empty(step.parent)
        shutil.rmtree(self._removed)

    def keep(self, step: Path, output: Path) -> int:
        """Move a step and what pytest printed of it to those that failed; return how many of these had to go."""
        target = self.place_of_failed(step)
        for folder in (target.parents[1], target.parent):
            _refuse_link(folder)
        if target.exists():
            # That of a former run.
            self._discard(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The commands in it that run an item again are to find the step.
        whole, former = self._path.resolve(), step.relative_to(self._path)
        text = output.read_text(errors="replace")
        moved = text.replace(f"{whole.name}/{former}/", f"{whole.name}/{FAILED_FOLDER}/{former}/")
        with new_file(step / OUTPUT_FILE) as file:
            file.write(moved.encode())
        with moving(self._path):
            step.rename(target)
            _remove_if_empty(step.parent)
        return self._make_room(target)

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)

    def _make_room(self, newest: Path) -> int:
        """Remove the steps that failed first while there are too many."""
        others = sorted(
            (step for step in waiting_steps(self._path / FAILED_FOLDER) if step != newest),
            key=lambda step: (step / OUTPUT_FILE).stat().st_mtime if (step / OUTPUT_FILE).exists() else 0.0,
        )
        sizes = [size_of(step) for step in others]
        count, size, gone = 1 + len(others), size_of(newest) + sum(sizes), 0
        while gone < len(others) and (count - gone > self._limits.steps or size > self._limits.bytes):
            self._discard(others[gone])
            size -= sizes[gone]
            gone += 1
        return gone

    def _discard(self, failed: Path) -> None:
        failed.rename(self._removed)
        _remove_if_empty(failed.parent)
        shutil.rmtree(self._removed)

    @property
    def _removed(self) -> Path:
        """Return where a folder goes at once before its files go one by one, so that no half of a step is ever seen."""
        return self.own / "removed"


def new_file(path: Path) -> BinaryIO:
    """Open a new file for writing in the place of a file, a folder or a link, which is removed and not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path.open("xb")


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise FolderError("is a link, and steps are not moved out of their folder", file=folder, remedy="remove it")


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
