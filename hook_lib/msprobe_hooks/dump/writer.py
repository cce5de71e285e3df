"""Writers of a dump as it is recorded (valid JSON after every append), of JSON lines, and of a spool folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from msprobe_hooks.dump.recording_paths import (
    CONSTRUCT_FILE,
    DEBUG_FILE,
    DUMP_FILE,
    STACK_FILE,
    TENSOR_FOLDER,
    StepRank,
    step_rank,
)
from msprobe_hooks.errors import DiskError, RecordingError
from msprobe_hooks.json_decoding import read_json_lines

_FOLDER_MODE = 0o750
FILE_MODE = 0o640

_encode = msgspec.json.Encoder().encode

NON_FINITE = {"nan": msgspec.Raw(b"NaN"), "inf": msgspec.Raw(b"Infinity"), "-inf": msgspec.Raw(b"-Infinity")}


def json_number(value: Any) -> Any:
    """Return a number as the encoder should see it: NaN and infinities as the bare tokens that Python's json writes."""
    if isinstance(value, float) and value - value != 0.0:
        return NON_FINITE[str(value)]
    return value


def as_json(value: Any) -> bytes:
    """Return a record, or a part of one, as it is in the file."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # Lone surrogates, as in undecodable file names, are escaped as msprobe writes them.
        return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return float(bytes(value))
    return {key: item for key, item in msgspec.structs.asdict(value).items() if item is not msgspec.UNSET}


def former_dump(path: Path) -> RecordingError:
    """Return the error for a dump that is there already."""
    return RecordingError(
        f"{path}: the folder already has a dump, which is not overwritten; pass another folder or remove this one"
    )


# What a setting or another folder would not change.
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def write_error(path: Path, what: str, error: OSError) -> RecordingError:
    """Return the error for a file or folder that cannot be ``what``: created, written."""
    kind = DiskError if error.errno in _REFUSALS else RecordingError
    return kind(f"{path}: cannot be {what}: {error.strerror}")


class JsonStream:
    """An object in a JSON file that grows by members. After each ``append`` the file on disk is complete."""

    def __init__(self, path: Path, head: bytes, tail: bytes) -> None:
        """Create the file. Raises RecordingError where it exists or cannot be written."""
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError:
            raise former_dump(path) from None
        except OSError as error:
            raise write_error(path, "created", error) from None
        self.path = path
        self._tail = tail
        self._end = 0
        self._is_empty = True
        try:
            self._write(head)
        except RecordingError:
            # What is on the disk is no JSON.
            self.close()
            self.remove()
            raise

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return self._end + len(self._tail)

    def append(self, members: Iterable[tuple[str, Any]]) -> list[tuple[str, Exception]]:
        """Add members, in order, in one write; return those that JSON cannot hold, with what is wrong.

        Raises RecordingError where the disk refuses; the file stays as it was.
        """
        texts, refused = [], []
        for name, value in members:
            try:
                texts.append(b"%s: %s" % (as_json(name), as_json(value)))
            except Exception as error:
                refused.append((name, error))
        if texts:
            text = b",\n".join(texts)
            self._write(text if self._is_empty else b",\n" + text)
            self._is_empty = False
        return refused

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            # Some file systems report a full disk here; what they lost cannot be written again.
            with suppress(OSError):
                os.close(file)

    def remove(self) -> None:
        """Delete the file, closed, where that is possible."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, text: bytes) -> None:
        # Text and tail go out together, so that only a kill inside this one system call can leave a torn file.
        view = memoryview(text + self._tail)
        place = self._end
        try:
            while view:
                done = os.pwrite(self._file, view, place)
                view, place = view[done:], place + done
        except OSError as error:
            self._restore()
            raise write_error(self.path, "written", error) from None
        self._end += len(text)

    def _restore(self) -> None:
        """Restore the file, as far as the disk lets."""
        if self._end == 0:
            return
        # Most disks have kept the room of the old tail, and those that have not may still cut the file.
        with suppress(OSError):
            os.pwrite(self._file, self._tail, self._end)
        with suppress(OSError):
            os.ftruncate(self._file, self._end + len(self._tail))


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raises RecordingError where that is not possible."""
    try:
        # One by one: mkdir(parents=True) gives the mode to the last alone.
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise write_error(path, "created", error) from None


class DumpWriter:
    """The files of one step and rank: ``dump.json``, ``stack.json``, ``construct.json``."""

    def __init__(
        self,
        folder: Path,
        *,
        task: str,
        level: str,
        keeps_tensors: bool,
        extra_info: bool = True,
        framework: str = "pytorch",
    ) -> None:
        """Create the files. Raises RecordingError where they exist or cannot be written."""
        make_folder(folder)
        self.folder = folder
        self.tensor_folder = folder / TENSOR_FOLDER
        if keeps_tensors:
            make_folder(self.tensor_folder)
        head = {
            "task": task,
            "level": level,
            "framework": framework,
            "dump_data_dir": str(self.tensor_folder.absolute()) if keeps_tensors else None,
            "tensor_layouts": True,
        }
        name = DEBUG_FILE if level == "debug" else DUMP_FILE
        self._streams: list[JsonStream] = []
        self._stacks = self._parents = None
        try:
            self._records = self._stream(name, _encode(head)[:-1] + b',\n"data": {\n', b"\n}}\n")
            if extra_info:
                self._stacks = self._stream(STACK_FILE, b"{\n", b"\n}\n")
                self._parents = self._stream(CONSTRUCT_FILE, b"{\n", b"\n}\n")
        except RecordingError:
            # A dump without its other files would be taken for one of a former run.
            self.close()
            self.remove()
            raise

    @property
    def size(self) -> int:
        """The bytes written to the JSON files."""
        return sum(stream.size for stream in self._streams)

    def records(self, records: Iterable[tuple[str, Any]]) -> list[tuple[str, Exception]]:
        """Append records to ``dump.json``; return those that JSON cannot hold, with what is wrong."""
        return self._records.append(records)

    def parents(self, parents: Iterable[tuple[str, str | None]]) -> None:
        """Append to ``construct.json``."""
        if self._parents is not None:
            self._parents.append(parents)

    def stacks(self, stacks: Iterable[tuple[str, tuple[list[str], list[str]]]]) -> None:
        """Append groups of records that share a stack to ``stack.json``."""
        if self._stacks is not None:
            self._stacks.append(stacks)

    def close(self) -> None:
        """Close the files; a second time does nothing."""
        for stream in self._streams:
            stream.close()

    def remove(self) -> None:
        """Delete the files, and the folders that hold nothing else, up to that of the recording."""
        for stream in self._streams:
            stream.remove()
        with suppress(OSError):
            for folder in (self.tensor_folder, self.folder, self.folder.parent):
                if folder.exists():
                    folder.rmdir()

    def _stream(self, name: str, head: bytes, tail: bytes) -> JsonStream:
        stream = JsonStream(self.folder / name, head, tail)
        self._streams.append(stream)
        return stream


class JsonLines:
    """A file to which lines are appended; it is made when there is something to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size = 0

    def write(self, line: msgspec.Struct) -> None:
        """Append a line. Raises RecordingError where the disk refuses."""
        text = as_json(line) + b"\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, FILE_MODE)
            done = os.write(self._file, text)
            if done < len(text):
                # Of a disk that is full now, the system took a part of the line.
                os.ftruncate(self._file, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise write_error(self._path, "written", error) from None
        self._size += len(text)

    def remove(self) -> None:
        """Delete the file, closed, where that is possible."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                os.close(file)


#: Where steps are written, in a folder for each rank.
WRITING_FOLDER: Final = ".recording"
#: While there is such a file, no step is taken in; following ends when it has checked those that are there.
STOP_FILE: Final = "stop"

_DROPPED_FILE = "dropped.jsonl"
_LOCK_FILE = ".lock"
_STEP, _RANK = re.compile(r"step[0-9]+"), re.compile(r"rank[0-9]*")


class Dropped(msgspec.Struct, frozen=True):
    """A step that was not taken in, its size in bytes, and why."""

    step: int
    rank: int | None
    bytes: int
    reason: str


def waiting_steps(folder: Path) -> list[Path]:
    """Return the folders of the complete steps, one for each rank of a step, in the order of their numbers."""
    return sorted((step for step in _complete(folder) if not _is_linked(step)), key=_numbers)


def linked_steps(folder: Path) -> list[Path]:
    """Return what would be complete steps, but is reached through links; these are neither checked nor removed."""
    return sorted((step for step in _complete(folder) if _is_linked(step)), key=_numbers)


def _complete(folder: Path) -> Iterator[Path]:
    return (path.parent for path in folder.glob(f"step*/rank*/{DUMP_FILE}") if _is_step(path.parent))


def _is_linked(step: Path) -> bool:
    return step.is_symlink() or step.parent.is_symlink()


def _is_step(folder: Path) -> bool:
    return _RANK.fullmatch(folder.name) is not None and _STEP.fullmatch(folder.parent.name) is not None


def _numbers(folder: Path) -> tuple[int, int]:
    step, rank = step_rank(folder)
    return step or 0, -1 if rank is None else rank


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


@contextmanager
def moving(folder: Path) -> Iterator[None]:
    """Lock a spool folder, so that one process at a time moves steps into it or out of it."""
    lock = os.open(folder / _LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def note_dropped(folder: Path, dropped: Dropped) -> None:
    """Append a line to what was dropped. Raises OSError."""
    file = os.open(folder / _DROPPED_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.write(file, as_json(dropped) + b"\n")
    finally:
        os.close(file)


def read_dropped(folder: Path) -> tuple[list[Dropped], list[str]]:
    """Return what was dropped, and a sentence for each line that cannot be read."""
    return read_json_lines(folder / _DROPPED_FILE, Dropped)


def step_name(folder: Path) -> str:
    """Return how messages call a step's folder, as ``step 3 of rank 1``."""
    step, rank = step_rank(folder)
    return str(StepRank(step)) if rank is None else f"step {step} of rank {rank}"
