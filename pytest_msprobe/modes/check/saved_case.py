"""A saved case as data: a folder with ``case.json`` and ``tensors.safetensors``.

The records stand there as in the dump, so that one reader serves both; the tensors are named by their place in the
call: ``args.0``, ``kwargs.weight``, ``grad.0`` (a gradient that arrives), and ``target.output.0``, ``golden...``,
``baseline...`` for what came out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from msprobe_hooks.dump.names import Direction, parse_api_name, split_direction
from msprobe_hooks.dump.schema import backward_record, forward_record
from msprobe_hooks.errors import RecordError
from msprobe_hooks.json_decoding import JsonError, JsonFormError, decode_json
from msprobe_hooks.messages import format_size
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.validation import shown
from pytest_msprobe.devices.math_modes import MathMode
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.errors import CaseError
from pytest_msprobe.results.result import SAVED, DirectionResult, as_json
from pytest_msprobe.storage.limits import StoredTensor

VERSION = 1
JSON_NAME = "case.json"
TENSORS_NAME = "tensors.safetensors"


NO_RECORD = msgspec.Raw(b"null")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One failing record, of a dump of ``framework``, and all that its verdict came from.

    ``inputs`` says whether they were those of the dump or found by exploring. ``forward`` and ``backward`` are the
    bodies of the records, a missing one is null; ``settings`` says in words what it failed on: device, math modes,
    version of torch. ``test`` is the id of the test that checked a function of its own, which has no records and whose
    code is not here. ``left_out`` names the results that the limits had no room for.
    """

    msprobe_case: int = VERSION
    record: str
    inputs: Literal["recorded", "explored"] = "recorded"
    framework: str = "pytorch"
    dump: str
    fingerprint: str
    seed: int
    policy: str
    level: str | None = None
    test: str = ""
    math_mode: MathMode = "auto"
    settings: dict[str, str] = {}
    forward: msgspec.Raw
    backward: msgspec.Raw = NO_RECORD
    tensors: dict[str, StoredTensor]
    left_out: tuple[str, ...] = ()
    result: DirectionResult

    @property
    def direction(self) -> Direction:
        """Return which of the call's two records failed."""
        return split_direction(self.record)[1] or "forward"

    def call(self) -> Call:
        """Return the call that the records describe. Raises RecordError or ValueError where they are no such."""
        name = parse_api_name(self.record)
        body = decode_json(self.backward)
        backward = None if body is None else backward_record(name.backward, body)
        forward = forward_record(name.forward, decode_json(self.forward))
        return Call(parse_api_name(forward.name), forward, backward, Path())


def encode_case(case: Case) -> bytes:
    """Return a case as JSON."""
    plain: dict[str, Any] = {name: getattr(case, name) for name in case.__struct_fields__}
    plain["result"] = as_json(msgspec.to_builtins(case.result))
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def read_case(folder: Path) -> Case:
    """Read the case in a folder; its tensors are read when they are needed.

    Raises CaseError where the folder holds no case, a damaged one, or one of a newer version.
    """
    path = folder / JSON_NAME
    try:
        text = read_regular(path)
    except OSError as error:
        raise CaseError(
            f"{path}: cannot be read: {error.strerror}; pass a folder written by --msprobe-save-failures"
        ) from None
    _check_version(path, text)
    try:
        case = decode_json(text, Case, strict=False)
        if not case.test:
            case.call()
    except JsonFormError as error:
        raise CaseError(f"not a case of format {VERSION}: {error}", file=path, remedy="copy or save it again") from None
    except (RecordError, ValueError) as error:
        raise CaseError(f"its record is malformed: {error}", file=path) from None
    return case


def _check_version(path: Path, text: bytes) -> None:
    try:
        fields = decode_json(text)
    except JsonError as error:
        raise CaseError(str(error), file=path, remedy="copy or save the case again") from None
    version = fields.get("msprobe_case") if isinstance(fields, dict) else None
    if type(version) is not int or version < 1:
        raise CaseError("not a saved case", file=path, remedy="pass a folder written by --msprobe-save-failures")
    if version > VERSION:
        raise CaseError(
            f"written by a newer version (format {version})", file=path, remedy="update pytest-msprobe to read it"
        )


def read_call_case(folder: Path) -> Case:
    """Read the case of a recorded call. Raises CaseError as `read_case` does, and for one of a test's own function."""
    case = read_case(folder)
    if case.test:
        problem = f"holds the inputs of a function of the test {shown(case.test)}"
        raise CaseError(problem, file=folder / JSON_NAME, remedy="run that test")
    return case


def find_cases(path: Path) -> list[Path]:
    """Return the folder of a case, or of every case below a folder, in the order of their names.

    Raises CaseError where there is none.
    """
    if path.name == JSON_NAME:
        return [path.parent]
    if (path / JSON_NAME).is_file():
        return [path]
    folders = sorted(file.parent for file in path.glob(f"**/{JSON_NAME}") if not file.parent.name.startswith("."))
    if not folders:
        raise CaseError("no saved case there", file=path, remedy="pass a folder written by --msprobe-save-failures")
    return folders


@dataclass(frozen=True, slots=True)
class SavedCase:
    """Outcome of saving a failing case: its folder and size in bytes, what was left out, or why it failed."""

    folder: str = ""
    size: int = 0
    left_out: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"The failing case was not saved: {self.problem}"
        left_out = f" without {', '.join(self.left_out)}" if self.left_out else ""
        return f"Saved ({format_size(self.size)}{left_out}): {self.folder}"


def with_saved(result: DirectionResult, saved: SavedCase) -> DirectionResult:
    """Return a result with a saved case, which ends its failure text."""
    cases = [*result.extras.get(SAVED, ()), msgspec.to_builtins(saved)]
    return replace(result, notes=(*result.notes, str(saved))).with_extra(SAVED, cases)


def saved_folder(extras: Mapping[str, Any]) -> str:
    """Return the folder of the first case that was saved of a record, empty where none was."""
    folders = (msgspec.convert(plain, SavedCase).folder for plain in extras.get(SAVED, ()))
    return next(filter(None, folders), "")


class SavedTally:
    """Counts saved cases for the summary."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the cases of one record."""
        for plain in extras.get(SAVED, ()):
            saved = msgspec.convert(plain, SavedCase)
            self._bytes += saved.size
            left_out = f" without {', '.join(saved.left_out)}: no space left" if saved.left_out else ""
            place = f"saved in {Path(saved.folder).parent}{left_out}"
            self._counts[f"not saved: {saved.problem}" if saved.problem else place] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._counts:
            return []
        head = f"failing cases ({format_size(self._bytes)}, for pytest-msprobe replay):"
        return [head, *(f"  {count} {text}" for text, count in self._counts.most_common())]
