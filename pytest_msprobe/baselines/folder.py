"""The folder of a baseline's tensors, as the process sees it that hears of every record."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path

from pytest_msprobe.results import KeptTensors
from pytest_msprobe.storage.names import LOCK_NAME, TEMPORARY
from pytest_msprobe.storage.sizes import format_size

_DIGEST = re.compile(r"-([0-9a-f]{32})\.safetensors\Z")


def tensors_folder(baseline: Path) -> Path:
    """Return the folder of a baseline's tensors: its name and ``.tensors``, beside it."""
    return baseline.with_name(f"{baseline.name}.tensors")


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
        told = f"msprobe baseline tensors: {self._folder} ({self._count} records, {format_size(self._size)})"
        return [told, *(f"  {count} left out, numbers only: {why}" for why, count in self._left_out.most_common())]

    def _clear(self, *patterns: str) -> None:
        with contextlib.suppress(OSError):
            for pattern in patterns:
                for path in self._folder.glob(pattern):
                    path.unlink()
