"""Reader of ``dump.json``: indexed at once, decoded record by record; opening any dump."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import is_module_name
from msprobe_hooks.dump.recording_paths import TENSOR_FOLDER, is_converted_file, is_iteration_file
from msprobe_hooks.dump.schema import (
    MAX_DEPTH,
    BackwardRecord,
    ForwardRecord,
    backward_record,
    forward_record,
    record_path,
)
from msprobe_hooks.errors import DumpError, RecordError
from msprobe_hooks.installed_extensions import first
from msprobe_hooks.json_decoding import JsonDepthError, JsonError, JsonFormError, cut_to_depth, decode_json
from msprobe_hooks.messages import did_you_mean, id_name, numbered, shown
from msprobe_hooks.regular_files import read_regular

if TYPE_CHECKING:
    from msprobe_hooks.dump.npy import Array


FRAMEWORKS = ("pytorch", "mindspore", "mindtorch")
LEVELS = ("L0", "L1", "L2", "mix", "debug", "aten", "compiled")
TASKS = (
    "statistics",
    "tensor",
    "structure",
    "overflow_check",
    "free_benchmark",
    "run_ut",
    "acc_check",
    "diff_check",
    "nan_check",
    "grad_probe",
    "exception_dump",
)

# A choice: the index and a copy of the text must fit into memory.
MAX_FILE_BYTES = 4 * 2**30

#: What the records of a dump are: calls of a program, kernels that a static graph executed, or converted files that
#: a card's library wrote of kernels.
DumpKind: TypeAlias = Literal["calls", "static graph", "kernel files"]

# Older recordings have these without saying so before the records.
_LAYOUTS = re.compile(rb'"stride": ?\[\d'), re.compile(rb'"memory_format": ?"')

_MARK = b'"positional"'


class _Envelope(msgspec.Struct):
    data: dict[str, msgspec.Raw]
    task: str | None = None
    level: str | None = None
    framework: str | None = None
    dump_data_dir: str | None = None
    tensor_layouts: Any = None


@dataclass(frozen=True)
class Dump:
    """A recorded run: an index of undecoded records, of which one is decoded when it is asked for.

    Its file::

        {"task": "statistics", "level": "L1", "framework": "pytorch",
         "data": {"Torch.add.0.forward":  {"input_args": [...], "input_kwargs": {}, "output": [...]},
                  "Torch.add.0.backward": {"input": [...], "output": [...]}, ...}}
                   name in ``records``    its bytes: ``forward(name)`` and ``backward(name)`` decode them

    Attributes:
        kind: What its records are.
        path: The file by which the dump goes.
        task: The task of the recording, such as ``statistics``.
        level: Its level, such as ``L1``.
        framework: ``pytorch``, ``mindspore`` or ``mindtorch``.
        records: The undecoded JSON of the records by name, in recorded order.
        has_layouts: Whether entries say how tensors lay in memory where that is not contiguous.
    """

    kind: ClassVar[DumpKind] = "calls"

    path: Path
    task: str
    level: str
    framework: str
    records: Mapping[str, msgspec.Raw]
    has_layouts: bool = field(default=False, kw_only=True)

    @cached_property
    def tensor_folder(self) -> Path:
        """The folder with real data, next to ``dump.json``, wherever the dump was moved."""
        return self.path.parent / TENSOR_FOLDER

    @property
    def has_statistics(self) -> bool:
        """Return whether records hold statistics of their tensors, or only the tensors' files."""
        return True

    @property
    def keeps_shapes(self) -> bool:
        """Return whether files hold tensors in their recorded shapes, or only their elements."""
        return True

    def array_at_hand(self, data_name: str) -> Array | None:
        """Return the content of a tensor's file where it came with the record, None where the file has to be read."""
        return None

    @property
    def surroundings(self) -> Surroundings:
        """The call context, read anew from the files next to the dump at each access."""
        return Surroundings(self.path.parent)

    @cached_property
    def api_names(self) -> list[str]:
        """The names of the records that are not about modules, in recorded order."""
        return [name for name in self.records if not is_module_name(name)]

    @property
    def module_count(self) -> int:
        """Return how many records are about modules."""
        return len(self.records) - len(self.api_names)

    def is_recomputed(self, name: str) -> bool:
        """Return, without decoding it, whether a record is of a call that activation checkpointing made again."""
        raw = bytes(self.records[name])
        return b'"is_recompute": true' in raw or b'"is_recompute":true' in raw

    def forward(self, name: str) -> ForwardRecord:
        """Decode a forward record. Raises RecordError where it is malformed, KeyError where there is none."""
        return forward_record(name, self.body(name))

    def backward(self, name: str) -> BackwardRecord:
        """Decode a backward record. Raises RecordError where it is malformed, KeyError where there is none."""
        return backward_record(name, self.body(name))

    def body(self, name: str) -> Any:
        """Return a record as the file has it. Raises RecordError for invalid JSON, KeyError for an unknown name."""
        try:
            return decode_json(self.records[name])
        except JsonError as error:
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
        records=_escaped(envelope.data),
        has_layouts=envelope.tensor_layouts is True or any(key.search(text) for key in _LAYOUTS),
    )


def _read_bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DumpError(
                f"{path}: larger than {MAX_FILE_BYTES / 2**30:.0f} GiB, the limit of a dump: {size / 2**30:.1f} GiB; "
                "record fewer steps, or set scope or list in the recording's config.json"
            )
        text = read_regular(path)
    except FileNotFoundError:
        raise DumpError(f"{path}: no such file; pass the dump.json that a recording wrote, or its folder") from None
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    if not text or text.isspace():
        raise DumpError(f"{path}: the file is empty; the recording stopped before its first flush; record again")
    return text.removeprefix(b"\xef\xbb\xbf")


def _decode_envelope(path: Path, text: bytes) -> _Envelope:
    try:
        try:
            return decode_json(text, _Envelope)
        except JsonDepthError:
            # What is left is still deeper than a record may be: it costs the record that it belongs to.
            return decode_json(cut_to_depth(text, 2 * MAX_DEPTH), _Envelope)
    except JsonFormError as error:
        problem = 'it has no "data"' if "required field `data`" in str(error) else str(error)
        # msgspec names the place of what it does not expect inside of the text.
        problem = "it is no JSON object" if problem.startswith("Expected `object`") and "$" not in problem else problem
        remedy = _paths_instead(text) or "pass the dump.json that a recording wrote"
        raise DumpError(f"{path}: not a dump: {problem}; {remedy}") from None
    except JsonError as error:
        raise DumpError(f"{path}: {error}; it was cut off or is not a dump; copy or record it again") from None


def _paths_instead(text: bytes) -> str:
    """Return what to pass in place of msprobe's ``compare.json``; nothing where it is another file."""
    try:
        content = decode_json(text, dict[str, object])
    except JsonError:
        return ""
    paths = [content.get(key) for key in ("npu_path", "bench_path")]
    target, golden = (shown(path) if isinstance(path, str) and path else "" for path in paths)
    if not target:
        return ""
    of_golden = f" and its bench_path {golden} as the golden run" if golden else ""
    return f"it is msprobe's compare.json: pass its npu_path {target} as the target{of_golden}"


def _escaped(records: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return records by names that ids can hold; of several that are then spelled alike, none is lost."""
    if all(map(str.isprintable, records)) and "::" not in "\n".join(records):
        return records
    return dict(zip(numbered(map(id_name, records)), records.values(), strict=True))


def _known(path: Path, key: str, value: str | None, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        spelling = "missing" if value is None else shown(value)
        raise DumpError(f'{path}: "{key}" is {spelling}; allowed: {", ".join(allowed)}{did_you_mean(value, allowed)}')
    return value


class _Positional(msgspec.Struct):
    names: list[str] = []


class _Details(msgspec.Struct):
    positional: _Positional = msgspec.field(default_factory=_Positional)


class _Body(msgspec.Struct):
    details: _Details = msgspec.field(default_factory=_Details)


def positional_names(dump: Dump, record: str) -> Sequence[str]:
    """Return the names of a module call's positional arguments, none where its record does not say them.

    Raises RecordError where it says them in another form.
    """
    raw = dump.records[record]
    if _MARK not in bytes(raw):
        return ()
    try:
        return decode_json(raw, _Body).details.positional.names
    except ValueError as error:
        raise RecordError(f"{record_path(record)}.details.positional", str(error)) from None


def open_dump(path: Path) -> Dump:
    """Read a ``dump.json``, or a dump of another form that an extension reads.

    Args:
        path: The file by which the dump goes, as `find_dumps` returns it.

    Returns:
        The dump, whose records are decoded when they are read.

    Raises:
        DumpError: The file cannot be used; the text names it, the problem and the remedy.
    """
    dump: Dump | None = first("open_dump", path)
    if dump is not None:
        return dump
    if is_converted_file(path) or is_iteration_file(path):
        raise DumpError(f"{path}: a kernel's file, which no installed extension reads; pass the folder of a dump.json")
    return read_dump(path)
