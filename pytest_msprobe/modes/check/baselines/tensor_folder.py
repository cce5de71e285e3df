"""The folder of a baseline's tensors: one safetensors file for each record, next to the baseline.

A row holds the digest of its record's file, and the file's name is made of record and digest. So no name leads out of
the folder, a later run leaves the files of an earlier baseline alone, and a file of another run is not taken for one
of this baseline.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from pathlib import Path

import msgspec

from msprobe_hooks.byte_sizes import format_size
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.modes.check.baselines.saved_tensors import KeptTensors
from pytest_msprobe.storage.limits import StoredTensor
from pytest_msprobe.storage.naming import LOCK_NAME, TEMPORARY, slug

# One key, since safetensors writes several in any order, and equal tensors are to make equal files.
METADATA = "msprobe_baseline"

_DIGEST = re.compile(r"-([0-9a-f]{32})\.safetensors\Z")


class Content(msgspec.Struct):
    """A file's metadata: whose tensors it holds (``dump`` is a fingerprint), and what they are by path."""

    record: str
    dump: str
    tensors: dict[str, StoredTensor]


def tensors_folder(baseline: Path) -> Path:
    """Return the folder of a baseline's tensors: its name and ``.tensors``, next to it."""
    return baseline.with_name(f"{baseline.name}.tensors")


def file_name(record: str, digest: str) -> str:
    """Return the name of a record's file in the folder of its baseline."""
    return f"{slug(record)}-{digest}.safetensors"


def digest_of(path: Path) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with open_regular(path) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


class KeptFolder:
    """Follows what the run's processes write into the folder, and leaves nothing there but that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: set[str] = set()
        self._left_out: Counter[str] = Counter()
        self._size = self._count = 0
        self._clear(LOCK_NAME, f"{TEMPORARY}*")

    def add(self, kept: KeptTensors) -> None:
        """Count what became of one record's tensors."""
        if kept.problem:
            self._left_out[kept.problem] += 1
            return
        self._digests.add(kept.digest)
        self._size += kept.size
        self._count += 1

    def finish(self) -> None:
        """Remove what belongs to an earlier baseline, now that this one has taken its place."""
        self._clear(LOCK_NAME, f"{TEMPORARY}*")
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.safetensors"):
                match = _DIGEST.search(path.name)
                if match and match[1] not in self._digests:
                    path.unlink()

    def lines(self) -> list[str]:
        """Return where the tensors are, and which are not there for what reason."""
        first = f"msprobe baseline tensors: {self._folder} ({self._count} records, {format_size(self._size)})"
        return [first, *(f"  {count} left out (numbers only): {why}" for why, count in self._left_out.most_common())]

    def _clear(self, *patterns: str) -> None:
        with contextlib.suppress(OSError):
            for pattern in patterns:
                for path in self._folder.glob(pattern):
                    path.unlink()
