"""A worker on another host than its controller's: where its files lie, and how it comes by those of one item."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_msprobe.errors import HostError
from pytest_msprobe.extensions.hosts.bootstrap import CHUNK, ArrivalError, evict, pin_file, store
from pytest_msprobe.results.result import map_leaves
from pytest_msprobe.storage.files import fingerprint, locked

#: The key of ``workerinput`` by which a worker on another host learns of it.
INPUT = "msprobe_elsewhere"

# The cache is looked through whenever a process has brought this share of what it may hold.
_SHARE = 16


class RemoteWorker:
    """Worker's view of its host: its name, the folder of the run's files, and the link to the controller."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.host: str = facts["host"]
        self._files: str = facts["files"]
        self._limit: int = facts["limit"]
        self._link = facts["link"]
        self._abandoned = facts["abandoned"]
        self._notices = facts["notices"]
        self._kept: list[int] = []
        self._brought = self._limit

    def as_there(self, tree: Any) -> Any:
        """Return plain data with paths as the controller has them."""
        return map_leaves(tree, self._leave_out) if self._files else tree

    def subscribe_abandoned(self, abandon: Callable[[str, str], None]) -> None:
        """Call a function for each record that did not end, with its dump's path here and its name."""

        def notify(call: tuple[str, str]) -> None:
            dump, record = call
            abandon(f"{self._files}{dump}", record)

        for call in self._abandoned:
            notify(call)
        self._notices.setcallback(notify)

    def fetch_files(self, paths: Iterable[Path]) -> None:
        """Fetch these files of the run's folders of tensors, and keep them until the next are fetched.

        One that the controller lacks stays missing. Raises HostError where one cannot be brought.
        """
        for descriptor in self._kept:
            os.close(descriptor)
        self._kept.clear()
        names: dict[Path, set[str]] = {}
        for path in paths:
            names.setdefault(path.parent, set()).add(path.name)
        try:
            for folder, files in names.items():
                self._bring(folder, sorted(files))
        except (ArrivalError, OSError) as error:
            raise HostError(self._problem(error)) from None

    def _bring(self, folder: Path, names: list[str]) -> None:
        there = os.path.normpath(self.as_there(str(folder)))
        if not folder.is_symlink() or str(folder.readlink()) == there:
            # The host sees the files itself.
            return
        for name, size_and_time in zip(names, self._ask("sizes", there, names), strict=True):
            if size_and_time is not None:
                self._fetch(folder.resolve() / name, f"{there}/{name}", *size_and_time)

    def send_back(self, folder: Path) -> None:
        """Send the controller the files that were written into a folder. Raises HostError where it does not take one.

        They stay here only where both see the same storage. What has only begun to be written is left alone.
        """
        if not folder.is_dir():
            return
        try:
            with locked(folder):
                # What describes the others comes last: a case without its JSON is none.
                for path in sorted(_written(folder), key=lambda path: (path.suffix == ".json", path)):
                    self._send(path)
        except (ArrivalError, OSError) as error:
            raise HostError(self._problem(error)) from None

    def _send(self, path: Path) -> None:
        if self._files and path.suffix == ".json":
            path.write_bytes(path.read_bytes().replace(self._files.encode(), b""))
        there, size = os.path.normpath(self.as_there(str(path))), path.stat().st_size
        if not self._ask("has", there, fingerprint(path)):
            with path.open("rb") as file:
                for offset in range(0, size, CHUNK):
                    self._ask("write", there, offset, size, file.read(CHUNK))
        if self._files:
            path.unlink()

    def _fetch(self, path: Path, there: str, size: int, changed: int) -> None:
        # One process brings a file that several wait for.
        with locked(path.parent):
            if not _is_current(path, size, changed):
                self._brought += size
                if self._brought * _SHARE > self._limit:
                    evict(path.parent.parent, self._limit - size)
                    self._brought = 0
                store(path, size, lambda offset: bytes(self._ask("read", there, offset)), changed=changed)
            self._kept.append(pin_file(path))

    def _ask(self, *question: Any) -> Any:
        self._link.send(question)
        problem, answer = self._link.receive()
        if problem:
            raise ArrivalError(problem)
        return answer

    def _leave_out(self, value: Any) -> Any:
        return value.replace(self._files, "") if isinstance(value, str) else value

    def _problem(self, error: ArrivalError | OSError) -> str:
        if isinstance(error, ArrivalError):
            return f"host {self.host}: {error}"
        return f"host {self.host}: {error.filename or 'the folder of received files'}: {error.strerror}"


def _written(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _is_current(path: Path, size: int, changed: int) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, changed)
