"""Failing inputs of a run: those of saved cases, and the smallest ones that exploring found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import home_of
from msprobe_hooks.dump.schema import forward_record
from msprobe_hooks.errors import RecordError
from msprobe_hooks.json_decoding import JsonError, decode_json
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.values.tensor_text import SmallestInput, smallest_input_of, tensor_of
from pytest_msprobe.errors import CaseError, JournalError
from pytest_msprobe.journal import read_journal
from pytest_msprobe.modes.check.saved_case import TENSORS_NAME, Case, find_cases, read_call_case
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.storage.files import fingerprint
from pytest_msprobe.storage.limits import TensorFileError
from pytest_msprobe.storage.tensors import read_tensor

# What came out is not among what goes in.
_INPUTS = ("args", "kwargs", "grad")


@dataclass(frozen=True, slots=True)
class SeenInput:
    """A record that failed, its call, and the tensors that it failed on, by their place.

    ``name`` distinguishes it from other inputs of the record; it may be a file's name.
    """

    name: str
    record: str
    framework: str
    call: Call
    tensors: Mapping[str, torch.Tensor]
    seed: int


@dataclass(frozen=True, slots=True)
class SavedInputs:
    """The inputs of saved cases, and the policy and level that they all failed by."""

    inputs: tuple[SeenInput, ...]
    policy: str
    level: str | None


def is_saved(path: Path) -> bool:
    """Return whether a path is that of saved cases, and of no dump."""
    if path.is_file():
        return path.name == "case.json"
    return path.is_dir() and not any(path.rglob("dump*.json")) and any(path.rglob("case.json"))


def read_saved(path: Path) -> SavedInputs:
    """Read the inputs of a case, or of all cases below a folder.

    Raises CaseError where one cannot be used, is of a test's own function, or failed by another policy than the others.
    """
    folders = find_cases(path)
    cases = [read_call_case(folder) for folder in folders]
    policies = {(case.policy, case.level) for case in cases}
    if len(policies) > 1:
        raise CaseError("its cases failed under several policies", file=path, remedy="pass the folders one by one")
    (policy, level) = policies.pop()
    return SavedInputs(tuple(map(_of_case, folders, cases)), policy, level)


def _of_case(folder: Path, case: Case) -> SeenInput:
    try:
        tensors = {
            name: read_tensor(folder / TENSORS_NAME, name, stored)
            for name, stored in case.tensors.items()
            if name.partition(".")[0] in _INPUTS
        }
    except TensorFileError as error:
        raise CaseError(str(error), remedy=error.remedy or "copy or save the case again") from None
    return SeenInput(folder.name, case.record, case.framework, case.call(), tensors, case.seed)


def read_smallest(dump: Dump, record: str, smallest: SmallestInput, seed: int) -> SeenInput:
    """Return what a journal holds of an explored input. Raises CaseError where that is not an input of the record."""
    name = parse_api_name(record)
    try:
        recorded = read_call(dump, name.forward)
        forward = forward_record(name.forward, decode_json(smallest.forward.encode()))
        tensors = {path: tensor_of(plain) for path, plain in smallest.tensors.items()}
    except (RecordError, JsonError, ValueError, Skip) as error:
        raise CaseError(f"the journal's explored input of {record} cannot be used: {error}") from None
    call = Call(parse_api_name(forward.name), forward, recorded.backward, recorded.tensor_folder)
    return SeenInput(record, record, dump.framework, call, tensors, seed)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of a run, and the settings under which they occurred, as the journal's header names them.

    ``smallest`` are the inputs to which exploring shrunk failures, by record.
    """

    records: frozenset[str]
    settings: Mapping[str, str]
    smallest: Mapping[str, SmallestInput] = field(default_factory=dict)


def read_failures(journal: Path, dump: Path) -> Failures:
    """Return what failed of a dump. Raises JournalError where the journal is unusable or is about other dumps."""
    read = read_journal(journal)
    mode = read.header.settings.get("mode", "nothing")
    if mode != "check":
        raise JournalError(f"a journal of {mode}", file=journal, remedy="pass a journal of pytest --msprobe-dump")
    digest = fingerprint(dump)
    same = [path for path, recorded_digest in read.header.dumps.items() if recorded_digest == digest]
    if not same:
        others = ", ".join(sorted(read.header.dumps))
        raise JournalError(
            f"not a journal of {dump}, or the dump has changed since", file=journal, remedy=f"its dumps are {others}"
        )
    failed = {
        entry.result.record: entry.result
        for entry in read.entries.values()
        if entry.result.verdict.outcome == "fail"
        and not entry.command
        and _dump_of(entry.id.partition("::")[0], read.header.dumps) in same
    }
    inputs = {record: smallest_input_of(result.extras) for record, result in failed.items()}
    smallest = {record: smallest_input for record, smallest_input in inputs.items() if smallest_input is not None}
    return Failures(frozenset(failed), read.header.settings, smallest)


def _dump_of(file: str, dumps: Iterable[str]) -> str | None:
    """Return which dump an item's file is: ids are relative to a folder that the journal does not name."""
    parts = PurePosixPath(file).parts
    matching = [
        dump
        for dump in dumps
        if any(path.parts[-len(parts) :] == parts for path in (PurePosixPath(dump), home_of(Path(dump))))
    ]
    return min(matching, key=len, default=None)
