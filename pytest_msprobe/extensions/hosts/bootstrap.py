"""Bootstrap of a process on another host before pytest starts: it reports its packages and gets the run's files.

execnet sends this file as source, so that it also runs where the plugin is missing: it imports the standard library
alone. The run's files lie there below one folder, each at its own path as the controller has it. So ids, labels and
texts differ from the controller's by that folder's name alone, which is left out of what is sent back. Where the host
sees the same files at the same paths, nothing is sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import stat
import tempfile
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How much of a file is asked for at a time.
CHUNK = 4 * 2**20

# What the run's folder has apart from what the plugin keeps there: the files, or the note that none are needed.
_FILES = "files"
_IN_PLACE = "in-place"
# As every folder of a run has it: held locked by each process that uses the folder.
_OWNER = "owner"


class ArrivalError(Exception):
    """A host cannot take what it is sent; the text says why."""


def installed(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of Python and of those modules that are there, empty where a module does not say.

    ``packages`` maps modules to the distributions that they are of.
    """
    versions = {"python": platform.python_version()}
    for module, distribution in packages.items():
        if find_spec(module) is not None:
            versions[module] = ""
            with contextlib.suppress(PackageNotFoundError):
                versions[module] = version(distribution)
    return versions


def install_run_files(run: Mapping[str, Any], read: Callable[[str, int], bytes]) -> dict[str, Any]:
    """Write the run's files where its processes find them, and have this process begin where the controller began.

    ``run`` is the controller's plain description of the run, see `hosts.sending`; ``read`` returns a part of one of
    its files from an offset on. Returns the run's folder here, the descriptor that holds it, and the folder that holds
    its files, empty where they lie as there. Raises ArrivalError and OSError.
    """
    folder, owner = _run_folder(run["run"])
    files = str(folder / _FILES)
    if (folder / _IN_PLACE).exists() or (not (folder / _FILES).exists() and _sees_all(run)):
        (folder / _IN_PLACE).touch()
        files = ""
    else:
        _mirror_all(files, run, read)
    os.chdir(files + run["folders"][0])
    os.environ["PYTEST_ADDOPTS"] = shlex.join(prefix_path(files, word) for word in run["words"])
    return {"run_folder": str(folder), "owner": owner, "files": files}


def store(path: Path, size: int, read: Callable[[int], bytes], digest: str = "", changed: int | None = None) -> None:
    """Write a file of ``size`` bytes that is read in parts; it is whole or not there.

    ``digest`` is what its content must have; ``changed``, in ns, becomes its time of change. Raises ArrivalError where
    less comes than was announced, or other content; OSError.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    content = hashlib.blake2b(digest_size=16)
    try:
        with part.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            while file.tell() < size:
                block = read(file.tell())
                if not block:
                    raise ArrivalError(f"{path.name}: truncated while it was sent, at {file.tell()} of {size} bytes")
                file.write(block)
                content.update(block)
        if digest not in ("", content.hexdigest()):
            raise ArrivalError(f"{path.name}: changed while it was sent; run again")
        if changed is not None:
            os.utime(part, ns=(time.time_ns(), changed))
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def pin_file(path: Path) -> int:
    """Keep a file of the cache from being removed until the descriptor that is returned is closed.

    It counts as used now. Raises OSError where it is gone.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    status = os.fstat(descriptor)
    os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
    return descriptor


def evict(cache: Path, limit: int) -> None:
    """Remove files of the cache, those not used for longest first, down to ``limit`` bytes; none that is kept."""
    files = []
    for path in cache.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and path.name != ".lock":
                files.append((status.st_atime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            _remove(path)
            total -= size


def _remove(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def _cache() -> Path:
    """Return the folder where this user's runs keep what they were sent. Raises ArrivalError where others can, too."""
    folder = Path(tempfile.gettempdir(), f"msprobe-files-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ArrivalError(f"{folder}: not a private folder of this user; remove it")
    return folder


def _run_folder(name: str) -> tuple[Path, int]:
    """Return the folder that the run's processes on this host share, and the descriptor by which this one holds it."""
    # Resolved, as a process is given its own folder.
    path = Path(tempfile.gettempdir()).resolve() / name
    if not path.exists():
        # Under its name it is never seen unlocked; the run's processes arrive one after the other.
        new = Path(tempfile.mkdtemp(prefix=f".{name}-"))
        owner = _hold(new)
        new.rename(path)
        return path, owner
    if path.lstat().st_uid != os.geteuid():
        raise ArrivalError(f"{path}: belongs to another user")
    return path, _hold(path)


def _hold(folder: Path) -> int:
    owner = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(owner, fcntl.LOCK_SH)
    return owner


def _sees_all(run: Mapping[str, Any]) -> bool:
    """Return whether all that the run needs lies here as it does there."""
    folders = map(Path, run["folders"])
    # Where one is a link, pytest would take its dumps for others than the controller's.
    return all(path.is_dir() and path.resolve() == path for path in folders) and all(map(_lies_here, run["files"]))


def _lies_here(file: Mapping[str, Any]) -> bool:
    return _is_same(Path(file["path"]), file)


def _is_same(path: Path, file: Mapping[str, Any]) -> bool:
    try:
        if path.stat().st_size != file["size"]:
            return False
        content = hashlib.blake2b(digest_size=16)
        with path.open("rb") as opened:
            while block := opened.read(CHUNK):
                content.update(block)
    except OSError:
        return False
    return bool(content.hexdigest() == file["digest"])


def _mirror_all(files: str, run: Mapping[str, Any], read: Callable[[str, int], bytes]) -> None:
    """Copy folders and files of the run below a folder, in the order in which they are wanted."""
    for name in run["folders"]:
        Path(files + name).mkdir(parents=True, exist_ok=True)
    for file in run["files"]:
        if run["only_in_place"] and not _lies_here(file):
            raise ArrivalError(f"{file['path']}: differs there or is missing, and {run['only_in_place']}")
        path = Path(files + file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if file["tensors"]:
            _mirror_with_tensors(path, file, run["limit"], read)
        elif not path.exists():
            store(path, file["size"], partial(read, file["path"]), file["digest"])


def _mirror_with_tensors(path: Path, file: Mapping[str, Any], limit: int, read: Callable[[str, int], bytes]) -> None:
    """Link to where a file and the folder of its tensors lie: at their own place, or in the cache."""
    tensors = Path(file["tensors"])
    if path.exists():
        if str(path.readlink()) != file["path"]:
            pin_file(path)
        return
    if _lies_here(file):
        stored = Path(file["path"])
    else:
        cache = _cache()
        tensors = cache / f"tensors-{hashlib.blake2b(file['tensors'].encode(), digest_size=16).hexdigest()}"
        tensors.mkdir(exist_ok=True)
        stored = cache / f"file-{file['digest']}"
        if not _is_same(stored, file):
            evict(cache, limit - file["size"])
            store(stored, file["size"], partial(read, file["path"]), file["digest"])
        pin_file(stored)
    for link, to in ((path.with_name(Path(file["tensors"]).name), tensors), (path, stored)):
        if not link.is_symlink():
            link.symlink_to(to)


def prefix_path(files: str, word: str) -> str:
    """Return a word of the command line in which an absolute path leads below the folder of files."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{flag}{equals}{files}{value}" if value.startswith("/") else word


def bootstrap(channel: Any) -> None:
    """Send the controller what is installed, then, where it goes on, what became of the run's files."""
    channel.send(installed(channel.receive()))
    run = channel.receive()
    if run is None:
        return

    def read(path: str, offset: int) -> bytes:
        channel.send(["read", path, offset])
        problem, content = channel.receive()
        if problem:
            raise ArrivalError(problem)
        return bytes(content)

    try:
        channel.send(["placed", install_run_files(run, read)])
    except ArrivalError as error:
        channel.send(["problem", str(error)])
    except OSError as error:
        channel.send(["problem", f"{error.filename or tempfile.gettempdir()}: {error.strerror}"])


if __name__ == "__channelexec__":
    bootstrap(channel)  # type: ignore[name-defined]  # noqa: F821
