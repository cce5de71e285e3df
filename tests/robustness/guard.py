"""What no input may lead to: a process, a connection, a file outside of the folder that was asked for."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NEVER = {
    "os.exec",
    "os.system",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
    "pickle.find_class",
}
_CHANGES = {"os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

_folder: Path | None = None
_met: list[str] = []


@contextlib.contextmanager
def nothing_leaves(folder: Path) -> Iterator[None]:
    """Fail where the code inside runs something, or writes elsewhere than below a folder and where runs keep files."""
    global _folder
    _folder = folder
    _met.clear()
    # What Python keeps of a module that is imported inside is no doing of the input.
    keeps_bytecode, sys.dont_write_bytecode = not sys.dont_write_bytecode, True
    try:
        yield
    finally:
        _folder = None
        sys.dont_write_bytecode = not keeps_bytecode
    assert not _met, _met


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _folder is None:
        return
    if event in _NEVER:
        _met.append(f"{event} {arguments}")
    elif event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITING and isinstance(path, (str, bytes)) and not _is_allowed(path):
            _met.append(f"open for writing: {path!r}")
    elif event in _CHANGES:
        paths = [path for path in arguments if isinstance(path, (str, bytes))]
        if not all(map(_is_allowed, paths)):
            _met.append(f"{event} {arguments}")


def _is_allowed(path: str | bytes) -> bool:
    where = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a name with NUL is no Path's business here
    temporary = tempfile.gettempdir()
    # pytest's capturing and the run's folder live next to each other in the temporary directory.
    own = (f"{_folder}/", f"{temporary}/pytest-msprobe-", f"{temporary}/tmp", "/dev/", f"/proc/{os.getpid()}/")
    return where in (temporary, str(_folder)) or where.startswith(own)


sys.addaudithook(_watch)
