"""Reading ``dump.json``: the whole file is indexed at once, a record is decoded when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from msprobe_hooks.dump.layout import TENSOR_FOLDER
from msprobe_hooks.dump.names import is_module_name
from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord, backward_record, forward_record, record_path
from msprobe_hooks.errors import DumpError, RecordError

FRAMEWORKS = ("pytorch", "mindspore", "mindtorch")
LEVELS = ("L0", "L1", "L2", "mix", "debug", "aten")
TASKS = (
    "statistics",
    "tensor",
    "structure",
    "overflow_check",
    "free_benchmark",
    "run_ut",
    "acc_check",
    "grad_probe",
    "exception_dump",
)

MAX_FILE_BYTES = 4 * 2**30


class _Envelope(msgspec.Struct):
    data: dict[str, msgspec.Raw]
    task: str | None = None
    level: str | None = None
    framework: str | None = None
    dump_data_dir: str | None = None


@dataclass(frozen=True)
class Dump:
    """A recorded run. ``records`` maps a record's name to its undecoded JSON, in recorded order."""

    path: Path
    task: str
    level: str
    framework: str
    records: Mapping[str, msgspec.Raw]

    @property
    def tensor_folder(self) -> Path:
        """The folder with real data: beside ``dump.json``, wherever the dump was moved."""
        return self.path.parent / TENSOR_FOLDER

    @cached_property
    def api_names(self) -> list[str]:
        """The names of the records that are not about modules, in recorded order."""
        return [name for name in self.records if not is_module_name(name)]

    @property
    def module_count(self) -> int:
        """How many records are about modules."""
        return len(self.records) - len(self.api_names)

    def forward(self, name: str) -> ForwardRecord:
        """Decode a forward record. Raises RecordError where it is malformed, KeyError where there is none."""
        return forward_record(name, self._decode(name))

    def backward(self, name: str) -> BackwardRecord:
        """Decode a backward record. Raises RecordError where it is malformed, KeyError where there is none."""
        return backward_record(name, self._decode(name))

    def _decode(self, name: str) -> Any:
        try:
            return msgspec.json.decode(self.records[name])
        except msgspec.DecodeError as error:
            raise RecordError(record_path(name), str(error)) from None


def read_dump(path: Path) -> Dump:
    """Index a ``dump.json``.

    Raises DumpError, naming the file, the problem and the remedy, where the file as a whole cannot be used.
    """
    text = _read_bytes(path)
    envelope = _decode_envelope(path, text)
    return Dump(
        path=path,
        task=_known(path, "task", envelope.task, TASKS),
        level=_known(path, "level", envelope.level, LEVELS),
        # Dumps older than 1.2 do not name their framework; all of those are PyTorch's.
        framework=_known(path, "framework", envelope.framework or "pytorch", FRAMEWORKS),
        records=envelope.data,
    )


def _read_bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DumpError(
                f"{path}: {size / 2**30:.1f} GiB is more than the {MAX_FILE_BYTES / 2**30:.0f} GiB that a dump may"
                " have; record fewer steps, or set scope or list in the recording's config.json"
            )
        text = path.read_bytes()
    except FileNotFoundError:
        raise DumpError(f"{path}: no such file; give the dump.json that a recording wrote, or its folder") from None
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    if not text or text.isspace():
        raise DumpError(f"{path}: the file is empty; the recording stopped before its first flush, record again")
    return text.removeprefix(b"\xef\xbb\xbf")


def _decode_envelope(path: Path, text: bytes) -> _Envelope:
    try:
        try:
            return msgspec.json.decode(text, type=_Envelope)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Most dumps have no bare NaN; looking for it takes longer than decoding.
            return msgspec.json.decode(_quote_non_finite(text), type=_Envelope)
    except msgspec.ValidationError as error:
        raise DumpError(
            f'{path}: not a dump: {error}; a dump is an object whose "data" maps names to records'
        ) from None
    except msgspec.DecodeError as error:
        raise DumpError(f"{path}: {_describe(error, text)}") from None
    except UnicodeDecodeError:
        raise DumpError(f"{path}: not UTF-8 text, so not a dump.json") from None


def _describe(error: msgspec.DecodeError, text: bytes) -> str:
    if "truncated" in str(error):
        return "the JSON ends too early; the recording was cut off or the copy is incomplete, copy or record it again"
    place = re.search(r"\(byte (\d+)\)", str(error))
    line = text.count(b"\n", 0, int(place[1])) + 1 if place else 1
    return f"not valid JSON at line {line}: {error}"


_NON_FINITE = re.compile(rb"NaN|Infinity")
_STRING_OR_NON_FINITE = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)')


def _quote_non_finite(text: bytes) -> bytes:
    """Turn the bare tokens NaN and Infinity, which Python's json writes, into strings that JSON allows.

    Strings cannot span lines in JSON, so only the lines that hold a token are looked at.
    """
    pieces: list[bytes] = []
    done = 0
    for match in _NON_FINITE.finditer(text):
        if match.start() < done:
            continue
        start = max(text.rfind(b"\n", done, match.start()), done)
        end = text.find(b"\n", match.end())
        end = len(text) if end < 0 else end
        pieces += [text[done:start], _STRING_OR_NON_FINITE.sub(_quote, text[start:end])]
        done = end
    if not pieces:
        return text
    pieces.append(text[done:])
    return b"".join(pieces)


def _quote(match: re.Match[bytes]) -> bytes:
    return b'"%s"' % match[1] if match[1] else match[0]


def _known(path: Path, key: str, value: str | None, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        found = "missing" if value is None else repr(value)
        raise DumpError(f'{path}: "{key}" is {found}; known are {", ".join(allowed)}')
    return value
