"""The folder that the processes of one run share: each one's stderr, and notices about records."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import pytest

#: ``abandoned``: this record did not end, its backward record is not tried. ``alone``: it is tried again, alone.
Notice = Literal["abandoned", "alone"]


class RunFolder:
    """A folder that lives as long as its run; every process of the run on this machine knows its path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls) -> RunFolder:
        """Make the folder of a new run."""
        return cls(Path(tempfile.mkdtemp(prefix="pytest-msprobe-")))

    def stderr_file(self, worker: str) -> Path:
        """Return the file that holds what a worker's item writes to stderr."""
        return self.path / f"{worker}.stderr"

    def post(self, notice: Notice, dump: Path | str, record: str) -> None:
        """Let every process know something about a record."""
        self._notice(notice, dump, record).touch()

    def is_posted(self, notice: Notice, dump: Path | str, record: str) -> bool:
        """Tell whether a notice about a record was posted."""
        return self._notice(notice, dump, record).exists()

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _notice(self, notice: Notice, dump: Path | str, record: str) -> Path:
        digest = hashlib.blake2b(f"{dump}::{record}".encode(), digest_size=12).hexdigest()
        return self.path / f"{notice}-{digest}"


run_folder_key = pytest.StashKey[RunFolder]()

INPUT = "msprobe_run_folder"


def open_run_folder(config: pytest.Config) -> None:
    """Make the folder of this run; an xdist worker uses its controller's, where it runs on the same machine."""
    path = getattr(config, "workerinput", {}).get(INPUT)
    if path is not None and Path(path).is_dir():
        config.stash[run_folder_key] = RunFolder(Path(path))
        return
    config.stash[run_folder_key] = folder = RunFolder.make()
    config.add_cleanup(folder.remove)
