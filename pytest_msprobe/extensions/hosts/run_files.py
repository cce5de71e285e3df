"""What the controller says of a run to a host, and the files that it sends there."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.extensions.hosts.bootstrap import CHUNK
from pytest_msprobe.storage.naming import fingerprint


@dataclass(frozen=True)
class RunFiles:
    """The files of a run: what its processes read when they start, and with some a folder of tensors for later.

    ``folders`` are these, by the path of the dump or baseline that they belong to. ``only_in_place`` says why the host
    must see the files itself, if it must. A host keeps up to ``limit`` bytes of what it was sent.
    """

    files: tuple[Path, ...]
    folders: Mapping[Path, Path]
    only_in_place: str
    limit: int

    @functools.cached_property
    def described(self) -> list[dict[str, Any]]:
        """Each file's path, size and digest, and the folder of its tensors or an empty text."""
        return [
            {
                "path": str(path),
                "size": path.stat().st_size,
                "digest": fingerprint(path),
                "tensors": str(self.folders.get(path, "")),
            }
            for path in self.files
        ]

    def part(self, path: Path, offset: int) -> bytes:
        """Return the bytes of a file of the run from an offset on. Raises ValueError for any other; OSError."""
        if path not in self.files:
            self._require_tensor_file(path)
        with open_regular(path) as file:
            file.seek(offset)
            return file.read(CHUNK)

    def size(self, path: Path) -> tuple[int, int] | None:
        """Return size and time of change, in ns, of a tensor file, None for one that is missing."""
        if not path.is_file():
            return None
        self._require_tensor_file(path)
        found = path.stat()
        return found.st_size, found.st_mtime_ns

    def _require_tensor_file(self, path: Path) -> None:
        """Raise ValueError for what does not lie directly in a folder of tensors, by its name and in truth."""
        if path.parent not in self.folders.values() or path.resolve().parent != path.parent.resolve():
            raise ValueError(path)


def remote_arguments(config: pytest.Config) -> list[str]:
    """Return the command line of a worker on another host, where pytest begins in the folder in which it began here.

    xdist would refuse paths that are files here. What pytest found out from its place is passed.
    """
    words = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    words.append(f"--rootdir={config.rootpath}")
    return [*words, f"--config-file={config.inipath}"] if config.inipath is not None else words


def files_read_at_start(config: pytest.Config) -> Iterable[Path]:
    """Return pytest's own file of settings and every ``conftest.py`` that is loaded."""
    if config.inipath is not None:
        yield config.inipath
    for plugin in config.pluginmanager.get_plugins():
        path = Path(getattr(plugin, "__file__", None) or "")
        if path.name == "conftest.py":
            yield path
