"""Saved tensors of a baseline, written in the process that ran the record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import msgspec

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.messages import format_size
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.baselines.tensor_folder import (
    METADATA,
    Content,
    KeptTensors,
    digest_of,
    file_name,
    with_kept,
)
from pytest_msprobe.modes.check.follow_ups import Judged
from pytest_msprobe.results.outcomes import describe_error
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.storage.files import TEMPORARY, locked
from pytest_msprobe.storage.limits import SaveOptions, TensorFileError
from pytest_msprobe.storage.tensors import describe, write_tensors


class _NoRoomError(Exception):
    """The limits do not take these tensors."""


class KeepTensors:
    """Writes what the target gave, as a step after the verdict; ``fingerprint`` digests a dump."""

    def __init__(self, options: SaveOptions, fingerprint: Callable[[Dump], str]) -> None:
        self._options = options
        self._fingerprint = fingerprint

    def __call__(self, judged: Judged) -> DirectionResult:
        """Write the tensors of a record that was measured and say so in its result."""
        saved = keep_tensors(judged.replay, judged.result, self._fingerprint(judged.dump), self._options)
        return judged.result if saved is None else with_kept(judged.result, saved)


def keep_tensors(replay: Replay, result: DirectionResult, dump: str, options: SaveOptions) -> KeptTensors | None:
    """Write what the target gave for a record that was measured, and say what became of it; None for any other.

    ``dump`` is the fingerprint of its dump. Nothing is raised: the verdict must not be lost for what a disk or a
    device does.
    """
    paths = [output.path for output in result.outputs if output.measured]
    if not paths:
        return None
    try:
        # That torch thinks little of complex32 is no concern of this, nor may it end it where warnings are errors.
        with suppress_warnings():
            return _keep(replay, result.record, paths, dump, options)
    except OSError as error:
        return KeptTensors(problem=error.strerror or str(error))
    except (TensorFileError, _NoRoomError) as error:
        return KeptTensors(problem=str(error))
    except Exception as error:
        return KeptTensors(problem=describe_error(error))


def _keep(replay: Replay, record: str, paths: Iterable[str], dump: str, options: SaveOptions) -> KeptTensors:
    tree = produced(replay.trial, parse_api_name(record).direction, ("target",))["target"]
    results = dict(tensors_with_paths(tree))
    tensors = {path: results[path] for path in paths if path in results}
    content = Content(record, dump, {path: describe(tensor) for path, tensor in tensors.items()})
    metadata = {METADATA: msgspec.json.encode(content).decode()}
    # Of the file's header, each tensor takes about as much as of the metadata.
    size = sum(tensor.nbytes for tensor in tensors.values()) + 2 * len(metadata[METADATA])
    if size > options.case_limit:
        raise _no_room("one record", options.case_limit)
    options.folder.mkdir(parents=True, exist_ok=True)
    _take(options, size)
    part = options.folder / f"{TEMPORARY}{os.getpid()}.safetensors"
    try:
        write_tensors(part, tensors, metadata)
        digest = digest_of(part)
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
        total = int(note.read() or 0) + size
        if total > options.folder_limit:
            raise _no_room("all", options.folder_limit)
        note.truncate(0)
        note.write(str(total))


def _no_room(what: str, limit: int) -> _NoRoomError:
    return _NoRoomError(f"no space left: the limit for {what} is {format_size(limit)}; raise msprobe_save_limit")
