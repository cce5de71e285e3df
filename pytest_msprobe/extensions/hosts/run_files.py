"""Files of a run on another host: those that the controller sends, serves and takes back."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.messages import format_size
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.extensions.hosts.bootstrap import CHUNK
from pytest_msprobe.storage.files import fingerprint


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
        status = path.stat()
        return status.st_size, status.st_mtime_ns

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


@dataclass(frozen=True)
class Outputs:
    """The folders that items write files into, each with the bytes that it may take."""

    limits: Mapping[Path, int]
    _announced: dict[Path, int] = field(default_factory=dict)

    def has(self, path: Path, digest: str) -> bool:
        """Return whether a file of this content is there already, as where both see the same storage."""
        self._folder_of(path)
        return path.is_file() and fingerprint(path) == digest

    def write(self, sender: str, path: Path, offset: int, size: int, content: bytes) -> str:
        """Take a part of a file of ``size`` bytes, a sender's parts in order; it has its name once it is whole.

        Returns why there is no room for it, empty where there is. Raises ValueError for a path or a part that no host
        may send; OSError.
        """
        folder, end = self._folder_of(path), offset + len(content)
        # Cards of several hosts may fail alike, and save the same case at once.
        part = path.with_name(f".{path.name}.{sender}.part")
        if not 0 <= end <= size or (offset and self._announced.get(part) != size):
            raise ValueError(end)
        if not offset:
            if self._used(folder, besides=path) + size > self.limits[folder]:
                return f"no space left: the limit is {format_size(self.limits[folder])}; raise msprobe_save_limit"
            self._announced[part] = size
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"")
        with part.open("r+b") as file:
            if file.seek(0, 2) != offset:
                raise ValueError(offset)
            file.write(content)
        if end == size:
            part.replace(path)
            del self._announced[part]
        return ""

    def _folder_of(self, path: Path) -> Path:
        """Return the folder of these in which a path lies, by its name and in truth."""
        for folder in self.limits:
            inside = path.resolve().is_relative_to(folder.resolve())
            if inside and path.is_relative_to(folder) and ".." not in path.parts and not path.is_symlink():
                return folder
        raise ValueError(path)

    def _used(self, folder: Path, *, besides: Path) -> int:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path != besides)


@dataclass(frozen=True)
class FileServer:
    """Answers questions about the files of a run, and takes those that its items wrote."""

    baggage: RunFiles
    outputs: Outputs

    def answer(self, question: Any, sender: str) -> tuple[str, Any]:
        """Return a problem, empty if there is none, and what the worker ``sender`` asked for.

        A question is a word, a path and what else the word needs: ``read`` a part of a file, ``sizes`` of some tensor
        files of a folder, whether the controller ``has`` what an item wrote, ``write`` a part of that.
        """
        try:
            word, name, *more = question
            path = Path(name)
            if word == "read":
                return "", self.baggage.part(path, *more)
            if word == "sizes":
                return "", [self.baggage.size(path / file) for file in more[0]]
            if word == "has":
                return "", self.outputs.has(path, *more)
            if word == "write":
                return self.outputs.write(sender, path, *more), None
        except OSError as error:
            return f"{error.filename or name}: {error.strerror}", None
        except (TypeError, ValueError, LookupError, ArithmeticError):
            pass
        return "request from a remote host rejected: not a file of this run", None
