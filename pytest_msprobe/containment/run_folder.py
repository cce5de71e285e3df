"""The folder that the processes of one run share: each one's stderr, and notices about records."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from msprobe_hooks.dump.recording_paths import home_of

#: ``abandoned``: this record did not end, its backward record is not tried. ``alone``: it is tried again, alone.
Notice = Literal["abandoned", "alone"]


_PREFIX = "pytest-msprobe-"

# A file that the run's processes hold locked; the system gives the lock up when the last of them has ended.
_OWNER = "owner"


class RunFolder:
    """A folder that lives as long as its run; every process of the run on this machine knows its path."""

    def __init__(self, path: Path, owner: int | None = None) -> None:
        self.path = path
        self._owner = owner

    @classmethod
    def make(cls) -> RunFolder:
        """Make the folder of a new run."""
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        new = path / "starting"
        owner = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(owner, fcntl.LOCK_EX)
        # Under its name it is never seen unlocked.
        new.rename(path / _OWNER)
        return cls(path, owner)

    def stderr_file(self, worker: str) -> Path:
        """Return the file that holds what a worker's item writes to stderr."""
        return self.path / f"{worker}.stderr"

    def post(self, notice: Notice, dump: Path | str, record: str) -> None:
        """Post a notice about a record to every process."""
        Path(self._notice(notice, dump, record)).touch()

    def is_posted(self, notice: Notice, dump: Path | str, record: str) -> bool:
        """Return whether a notice about a record was posted."""
        return os.path.exists(self._notice(notice, dump, record))  # noqa: PTH110 - asked for each item

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._owner is not None:
            os.close(self._owner)

    def leave(self) -> None:
        """Delete the folder if no other process of the run holds it; on a host without the controller all do."""
        assert self._owner is not None
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove()

    def _notice(self, notice: Notice, dump: Path | str, record: str) -> str:
        text = f"{_home(dump)}::{record}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=12).hexdigest()
        return f"{self.path}{os.sep}{notice}-{digest}"


@functools.lru_cache(64)
def _home(dump: Path | str) -> Path:
    """Return what is the same for the file that a dump goes by and for the id of its items."""
    return home_of(Path(dump))


def clear_orphans() -> None:
    """Delete this user's folders of runs that were killed; one without an owner may be a run that starts just now."""
    with os.scandir(tempfile.gettempdir()) as entries:
        folders = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for path in folders:
        with contextlib.suppress(OSError):
            _clear_orphan(path)


def _clear_orphan(path: str) -> None:
    """Delete a folder without an owner. Raises OSError where it is not one, or is another user's."""
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        if os.fstat(folder).st_uid != os.geteuid():
            return
        with _opened(_OWNER, os.O_RDWR, inside=folder) as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)


@contextlib.contextmanager
def _opened(path: str, flags: int, *, inside: int | None = None) -> Iterator[int]:
    """Open a path, which may not be a link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


run_folder_key = pytest.StashKey[RunFolder]()

#: Under which a worker is given the folder, and on another host the descriptor by which it holds the folder.
INPUT = "msprobe_run_folder"
OWNER_INPUT = "msprobe_run_folder_owner"


def open_run_folder(config: pytest.Config) -> None:
    """Make the folder of this run; an xdist worker uses the one that its host has."""
    workerinput = getattr(config, "workerinput", {})
    if INPUT in workerinput:
        config.stash[run_folder_key] = folder = RunFolder(Path(workerinput[INPUT]), workerinput.get(OWNER_INPUT))
        if OWNER_INPUT in workerinput:
            clear_orphans()
            config.add_cleanup(folder.leave)
        return
    clear_orphans()
    config.stash[run_folder_key] = folder = RunFolder.make()
    config.add_cleanup(folder.remove)
