"""The controller's answers to what other hosts ask for, and the files it takes from them: those of the run alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe_hooks.byte_sizes import format_size
from pytest_msprobe.extensions.hosts.run_files import RunFiles
from pytest_msprobe.storage.naming import fingerprint


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
                return f"no space left: the limit is {format_size(self.limits[folder])}; raise --msprobe-save-limit"
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
