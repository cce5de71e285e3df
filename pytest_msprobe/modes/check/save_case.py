"""Saved failing cases: whole or not at all, within the limits, each under a name of its own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import torch

from msprobe_hooks.dump.names import Direction, backward_of, forward_of, split_direction
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.messages import format_size
from pytest_msprobe.devices.math_modes import math_modes
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.function_check import FunctionCheck
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.errors import CaseError
from pytest_msprobe.modes.check.follow_ups import Judged
from pytest_msprobe.modes.check.saved_case import (
    JSON_NAME,
    NO_RECORD,
    TENSORS_NAME,
    Case,
    SavedCase,
    encode_case,
    with_saved,
)
from pytest_msprobe.results.outcomes import describe_error
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.storage.files import TEMPORARY, fingerprint, locked, slug
from pytest_msprobe.storage.limits import SaveOptions, TensorFileError
from pytest_msprobe.storage.tensors import describe, write_tensors

# What is left out first where the limits are tight; without its inputs a case is of no use.
_DISPENSABLE = ("baseline", "golden", "target")


Saveable: TypeAlias = Replay | FunctionCheck


@dataclass(frozen=True, slots=True)
class CaseOrigin:
    """Origin of a case, but for its replay: the dump, the bodies of its records, and the policy as it was named.

    ``has_file`` is False where nothing was dumped, and ``dump`` only says where the call was made. ``test`` is the
    id of the test that checked a function of its own.
    """

    dump: Path
    forward: msgspec.Raw
    backward: msgspec.Raw
    policy: str
    level: str | None = None
    explored: bool = False
    has_file: bool = True
    test: str = ""


def origin_of(dump: Dump, record: str, policy: str, level: str | None, explored: bytes | None = None) -> CaseOrigin:
    """Return the origin of a record's own inputs, or of explored ones with the body of their forward record."""
    forward = dump.records[forward_of(record)] if explored is None else msgspec.Raw(explored)
    backward = dump.records.get(backward_of(record), NO_RECORD)
    return CaseOrigin(dump.path, forward, backward, policy, level, explored is not None)


class SaveFailure:
    """Saves what fails, as a step after the verdict. The policy is as the user named it."""

    def __init__(self, options: SaveOptions, policy: str, level: str | None) -> None:
        self._options = options
        self._policy = policy
        self._level = level

    def __call__(self, judged: Judged) -> DirectionResult:
        """Save a failing record's case and say so in its result."""
        if judged.result.verdict.outcome != "fail":
            return judged.result
        return with_saved(judged.result, self.saved(judged.dump, judged.replay, judged.result))

    def saved(self, dump: Dump, replay: Replay, result: DirectionResult, explored: bytes | None = None) -> SavedCase:
        """Save a failing case and say what became of it; ``explored`` is the forward record of an explored input."""
        origin = origin_of(dump, result.record, self._policy, self._level, explored)
        return save_case(replay, result, origin, self._options)


def save_case(replay: Saveable, result: DirectionResult, origin: CaseOrigin, options: SaveOptions) -> SavedCase:
    """Save a failing record's inputs and what came out, and say what became of it.

    Nothing is raised: a run goes on whatever the disk does, and the failure is reported with why it was not saved.
    """
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        # That torch thinks little of complex32 is no concern of this, nor may it end it where warnings are errors.
        with _alone(options.folder), suppress_warnings():
            return _save(replay, result, origin, options)
    except OSError as error:
        return SavedCase(problem=f"{options.folder}: {error.strerror or error}")
    except (CaseError, TensorFileError) as error:
        return SavedCase(problem=str(error))
    except Exception as error:
        # A device may raise anything when its results are copied, and the verdict must not be lost for it.
        return SavedCase(problem=describe_error(error))


def _save(replay: Saveable, result: DirectionResult, origin: CaseOrigin, options: SaveOptions) -> SavedCase:
    direction = split_direction(result.record)[1] or "forward"
    folder = options.folder / case_name(result.record, origin, replay.setup.seed, options.folder)
    room = min(options.case_limit, options.folder_limit - _used(options.folder, besides=folder))
    inputs, results = replay.input_tensors(direction), _results(replay, direction)
    case = Case(
        record=result.record,
        inputs="explored" if origin.explored else "recorded",
        framework=replay.setup.framework.name,
        dump=str(origin.dump),
        fingerprint=_fingerprint(origin.dump) if origin.has_file else "",
        seed=replay.setup.seed,
        policy=origin.policy,
        level=origin.level,
        test=origin.test,
        math_mode=replay.setup.math_mode,
        settings=_settings(replay),
        forward=origin.forward,
        backward=origin.backward,
        tensors={name: describe(tensor) for tree in (inputs, *results.values()) for name, tensor in tree.items()},
        result=result.without_error_maps(),
    )
    # The header of the tensors' file says less of each than case.json does.
    room -= 2 * len(encode_case(case))
    tensors, left_out = _within(room, inputs, results)
    case = msgspec.structs.replace(case, left_out=left_out, tensors={name: case.tensors[name] for name in tensors})
    with _replacing(folder) as temporary:
        write_tensors(temporary / TENSORS_NAME, tensors)
        (temporary / JSON_NAME).write_bytes(encode_case(case))
        size = sum(file.stat().st_size for file in temporary.iterdir())
    return SavedCase(str(folder), size, left_out)


def case_name(record: str, origin: CaseOrigin, seed: int, folder: Path) -> str:
    """Return the name of a case's folder: readable, safe whatever the record is called, and not another case's.

    Of the dump's path counts how it leads there from ``folder``, which is the same on every host of a run.
    """
    parts = [os.path.relpath(origin.dump, folder), record, str(seed), str(origin.explored)]
    text = "\0".join([*parts, origin.test] if origin.test else parts)
    return f"{slug(record)}-{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"


def _results(replay: Saveable, direction: Direction) -> dict[str, dict[str, torch.Tensor]]:
    trees = produced(replay.trial, direction)
    return {side: dict(tensors_with_paths(tree, side)) for side, tree in trees.items()}


def _within(
    room: int, inputs: Mapping[str, torch.Tensor], results: dict[str, dict[str, torch.Tensor]]
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Return the tensors for which there is room, and which results were left out."""
    sizes = {side: sum(tensor.nbytes for tensor in tensors.values()) for side, tensors in results.items()}
    needed = sum(tensor.nbytes for tensor in inputs.values())
    if needed > room:
        raise CaseError(
            f"its inputs take {format_size(needed)}, {format_size(max(room, 0))} are left; raise msprobe_save_limit"
        )
    left_out = []
    for side in _DISPENSABLE:
        if needed + sum(sizes.values()) > room and sizes.pop(side, None) is not None:
            left_out.append(side)
    fitting = {name: tensor for side in sizes for name, tensor in results[side].items()}
    return {**inputs, **fitting}, tuple(left_out)


def _settings(replay: Saveable) -> dict[str, str]:
    return {
        "device": replay.setup.framework.describe(replay.setup.device),
        "math modes": ", ".join(math_modes()),
        "torch": str(torch.__version__),
    }


@functools.lru_cache(maxsize=16)
def _fingerprint(dump: Path) -> str:
    return fingerprint(dump)


def _used(folder: Path, *, besides: Path) -> int:
    return sum(
        file.stat().st_size for case in folder.iterdir() if case != besides and case.is_dir() for file in case.iterdir()
    )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time saves into it, and clear away what a dying one left."""
    with locked(folder):
        for left in folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of ``folder`` once it is complete.

    Raises CaseError where something else than a case has that name.
    """
    if folder.exists() and not (folder / JSON_NAME).is_file():
        raise CaseError("exists and is not a saved case", file=folder, remedy="move it away")
    temporary = folder.with_name(f"{TEMPORARY}{folder.name}")
    former = folder.with_name(f"{TEMPORARY}former-{folder.name}")
    try:
        temporary.mkdir()
        yield temporary
        if folder.exists():
            folder.rename(former)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)
