"""A baseline's tensors: one safetensors file for each record, in a folder beside the baseline.

A row holds the digest of its record's file, and the file's name is made of record and digest. So no name leads out of
the folder, a later run leaves the files of an earlier baseline alone, and a file of another run is not taken for one
of this baseline.
"""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from msprobe_hooks.names import parse_api_name
from pytest_msprobe.baselines.rows import RecordRow
from pytest_msprobe.replay.check import Replay
from pytest_msprobe.replay.failures import describe_error
from pytest_msprobe.replay.judging import produced
from pytest_msprobe.replay.skips import Skip
from pytest_msprobe.replay.tree import tensors_with_paths
from pytest_msprobe.results import DirectionResult, KeptTensors
from pytest_msprobe.storage.names import TEMPORARY, locked, slug
from pytest_msprobe.storage.sizes import SaveOptions, format_size
from pytest_msprobe.storage.stored import StoredTensor, TensorFileError
from pytest_msprobe.storage.tensors import describe, read_tensor, write_tensors

# One key, since safetensors writes several in any order, and equal tensors are to make equal files.
_METADATA = "msprobe_baseline"


class _Content(msgspec.Struct):
    record: str
    dump: str
    tensors: dict[str, StoredTensor]


class _NoRoomError(Exception):
    """The limits do not take these tensors."""


def file_name(record: str, digest: str) -> str:
    """Return the name of a record's file in the folder of its baseline."""
    return f"{slug(record)}-{digest}.safetensors"


def keep_tensors(replay: Replay, result: DirectionResult, dump: str, options: SaveOptions) -> KeptTensors | None:
    """Write what the target gave for a record that was measured, and say what became of it; None for any other.

    ``dump`` is the fingerprint of its dump. Nothing is raised: the verdict must not be lost for what a disk or a
    device does.
    """
    paths = [output.path for output in result.outputs if output.measured]
    if not paths:
        return None
    try:
        with warnings.catch_warnings():
            # That torch thinks little of complex32 is no concern of this, nor may it end it where warnings are errors.
            warnings.simplefilter("ignore")
            return _keep(replay, result.record, paths, dump, options)
    except OSError as error:
        return KeptTensors(problem=error.strerror or str(error))
    except (SafetensorError, _NoRoomError) as error:
        return KeptTensors(problem=str(error))
    except Exception as error:
        return KeptTensors(problem=describe_error(error))


def _keep(replay: Replay, record: str, paths: Iterable[str], dump: str, options: SaveOptions) -> KeptTensors:
    tree = produced(replay.trial, parse_api_name(record).direction, ("target",))["target"]
    found = dict(tensors_with_paths(tree))
    tensors = {path: found[path] for path in paths if path in found}
    content = _Content(record, dump, {path: describe(tensor) for path, tensor in tensors.items()})
    metadata = {_METADATA: msgspec.json.encode(content).decode()}
    # Of the file's header, each tensor takes about as much as of the metadata.
    size = sum(tensor.nbytes for tensor in tensors.values()) + 2 * len(metadata[_METADATA])
    if size > options.case_limit:
        raise _no_room("one record", options.case_limit)
    options.folder.mkdir(parents=True, exist_ok=True)
    _take(options, size)
    part = options.folder / f"{TEMPORARY}{os.getpid()}.safetensors"
    try:
        write_tensors(part, tensors, metadata)
        digest = _digest(part)
        part.replace(options.folder / file_name(record, digest))
    except BaseException:
        part.unlink(missing_ok=True)
        _take(options, -size)
        raise
    return KeptTensors(digest, size)


def _take(options: SaveOptions, size: int) -> None:
    """Count ``size`` bytes among those that this run takes, in all its processes."""
    with locked(options.folder) as note:
        note.seek(0)
        taken = int(note.read() or 0) + size
        if taken > options.folder_limit:
            raise _no_room("all", options.folder_limit)
        note.truncate(0)
        note.write(str(taken))


def _no_room(what: str, limit: int) -> _NoRoomError:
    return _NoRoomError(f"no room: {what} may take {format_size(limit)}; raise --msprobe-save-limit")


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


class RecordedResult:
    """What a baseline has of one record: its row, and its tensors where it has them.

    ``problem`` says why tensors that the row tells of were not used; the row's numbers then stand in for them.
    """

    def __init__(self, row: RecordRow, folder: Path) -> None:
        self.row = row
        self.problem = ""
        self._path = folder / file_name(row.record, row.tensors)

    def tensor(self, path: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Return the output or gradient at a path; None where there is none of this dtype and shape to be had."""
        stored = self._stored.get(path)
        if stored is None:
            return None
        if (stored.dtype, stored.shape) != (str(dtype), shape):
            self.problem = f"{self._path}: {path} is {stored.dtype} {stored.shape}, here {dtype} {shape}"
            return None
        try:
            return read_tensor(self._path, path, stored)
        except (TensorFileError, Skip) as error:
            self.problem = str(error)
            return None

    @functools.cached_property
    def _stored(self) -> dict[str, StoredTensor]:
        if not self.row.tensors:
            return {}
        try:
            return self._read()
        except OSError as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        except (TensorFileError, SafetensorError, msgspec.MsgspecError, RecursionError) as error:
            why = str(error)
        self.problem = f"{self._path}: {why}"
        return {}

    def _read(self) -> dict[str, StoredTensor]:
        if self._path.resolve().parent != self._path.parent.resolve():
            raise TensorFileError("leads out of its folder")
        if _digest(self._path) != self.row.tensors:
            raise TensorFileError("is not what the baseline's run wrote: damaged, or changed since")
        with safe_open(self._path, framework="pt") as file:
            metadata = file.metadata() or {}
        if _METADATA not in metadata:
            raise TensorFileError("holds no tensors of a baseline")
        content = msgspec.json.decode(metadata[_METADATA], type=_Content)
        if content.record != self.row.record:
            raise TensorFileError(f"is about {content.record!r}")
        return content.tensors
