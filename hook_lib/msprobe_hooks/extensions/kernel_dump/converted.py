"""A tree of converted files as a `Dump`: each execution of a kernel is a record, each file one of its values.

Records are named ``Kernel.{op}.{number}.forward`` in the order of the files' times; the number counts the executions of
one op, so that two runs find each other by op and order whatever the times were. Opening a tree reads names alone: a
kernel's files are read when its record is asked for, once for their headers and for what they hold.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from msprobe_hooks.dump.json_records import SIDES, Kernel, KernelDump, Side, encoded, record_name, unreadable
from msprobe_hooks.dump.npy import Array, dtype_name, read_array
from msprobe_hooks.dump.reader import DumpKind
from msprobe_hooks.dump.recording_paths import (
    KERNEL_FILE,
    KERNEL_LEVEL,
    MAPPING_FILE,
    NAME_IN_WORDS,
    SUFFIX,
    full_names,
    tree_of,
)
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import id_name

_SHORTENED = re.compile(r"[0-9a-f]{32}\.npy", re.ASCII)


class KernelFile(NamedTuple):
    """The parts of a file's name: of which execution, or slice of one, of which kernel, and which of its tensors."""

    type: str
    op: str
    task: int
    stream: int
    time: int
    slice: tuple[int, ...]
    side: str
    slot: int


def parse_name(name: str) -> KernelFile | None:
    """Return the parts of the name of a converted file, None for any other name."""
    match = KERNEL_FILE.fullmatch(name)
    if match is None:
        return None
    kind, op, task, stream, time, numbers, side, slot = match.groups()
    slice_ = tuple(map(int, numbers[1:].split("."))) if numbers else ()
    return KernelFile(kind, id_name(op), int(task), int(stream or 0), int(time), slice_, side, int(slot))


def is_shortened(name: str) -> bool:
    """Return whether a file's name replaces one that was too long."""
    return _SHORTENED.fullmatch(name) is not None


class _Execution(NamedTuple):
    """Common parts of one execution's files, in the order of executions."""

    time: int
    task: int
    stream: int
    slice: tuple[int, ...]
    op: str
    type: str


class _File(NamedTuple):
    """A tensor of an execution, and the place of its file below the tree, in the order of a kernel's tensors."""

    side: Side
    slot: int
    place: str
    is_link: bool


class _Numbered(NamedTuple):
    """An execution as one of its op's, which are counted from 0."""

    execution: _Execution
    number: int
    files: Sequence[_File]


class KernelsOnDemand(Mapping[str, Kernel]):
    """The kernels of a tree by the names of their records, each read when it is asked for first.

    ``arrays`` are those of the kernel that was read last, but for large ones, by the places of their files.
    """

    def __init__(self, home: Path, executions: Mapping[str, _Numbered]) -> None:
        self._home = str(home)
        self._executions = executions
        self._kernels: dict[str, Kernel] = {}
        self.arrays: Mapping[str, Array] = {}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = self._read(*self._executions[name])
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._executions)

    def __len__(self) -> int:
        return len(self._executions)

    def _read(self, execution: _Execution, number: int, files: Sequence[_File]) -> Kernel:
        sides: dict[Side, dict[int, TensorElement]] = {"input": {}, "output": {}}
        problems: list[str] = []
        arrays: dict[str, Array] = {}
        for side, slot, place, is_link in sorted(files):
            path = f"{self._home}/{place}"
            shape: tuple[int, ...] = ()
            dtype = ""
            try:
                array = read_array(path)
                shape, dtype = array.shape, dtype_name(array.dtype)
                # Where a link leads to is looked at by who reads what it holds.
                if not is_link:
                    arrays[place] = array
            except (OSError, ValueError) as error:
                problems.append(unreadable(path, error))
            sides[side][slot] = TensorElement("numpy.ndarray", dtype, shape, data_name=place)
        self.arrays = arrays
        return Kernel(execution.type, execution.op, number, sides["input"], sides["output"], tuple(problems))


class _Records(Mapping[str, msgspec.Raw]):
    """Kernels as records of ``dump.json``."""

    def __init__(self, kernels: KernelsOnDemand) -> None:
        self._kernels = kernels

    def __getitem__(self, name: str) -> msgspec.Raw:
        return encoded(self._kernels[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


@dataclass(frozen=True)
class ConvertedDump(KernelDump):
    """A tree of converted files; ``home`` is its folder."""

    kind: ClassVar[DumpKind] = "kernel files"

    kernels: KernelsOnDemand
    home: Path

    @property
    def tensor_folder(self) -> Path:
        """The folder from which files are named."""
        return self.home

    @property
    def has_statistics(self) -> bool:
        """Empty: only the files are known."""
        return False

    def array_at_hand(self, data_name: str) -> Array | None:
        """Return what was read with the record that was asked for last."""
        return self.kernels.arrays.get(data_name)


def read_tree(path: Path) -> ConvertedDump:
    """Read the tree that goes by a file: names alone, neither headers nor values.

    Raises DumpError where it cannot be read, or one of its files has no converted file's name.
    """
    home = tree_of(path)
    executions: dict[_Execution, list[_File]] = defaultdict(list)
    names_of = lru_cache(maxsize=4)(_full_names)
    for place, is_link in _places(str(home)):
        named = _named(home, place, names_of)
        execution = _Execution(named.time, named.task, named.stream, named.slice, named.op, named.type)
        executions[execution].append(_File(SIDES[named.side], named.slot, place, is_link))
    kernels = KernelsOnDemand(home, dict(_numbered(executions)))
    return ConvertedDump(
        path=path,
        task="tensor",
        level=KERNEL_LEVEL,
        framework="pytorch",
        records=_Records(kernels),
        kernels=kernels,
        home=home,
    )


def _named(home: Path, place: str, names_of: Callable[[Path], Mapping[str, str]]) -> KernelFile:
    """Return the parts of a file's name, or of the name that it replaces. Raises DumpError for any other name."""
    name = place.rpartition("/")[2]
    named = parse_name(name)
    if named is None and is_shortened(name):
        named = parse_name(names_of((home / place).parent).get(name, ""))
        if named is None:
            raise DumpError(
                f"{home / place}: the number replaces a name that was too long, and no {MAPPING_FILE} next to it lists "
                "it; copy that file from where the converter ran"
            )
    if named is None:
        raise DumpError(
            f"{home / place}: not the name of a converted kernel file, {NAME_IN_WORDS}; move the file out of the folder"
        )
    return named


def _full_names(folder: Path) -> dict[str, str]:
    try:
        return full_names(folder / MAPPING_FILE)
    except OSError:
        return {}


def _places(home: str) -> Iterator[tuple[str, bool]]:
    """Yield the place of each file below a tree, with ``/``, and whether it is a link."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        folder = os.path.join(home, below)  # noqa: PTH118
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{below}{entry.name}/")
                    elif entry.name.endswith(SUFFIX):
                        yield below + entry.name, entry.is_symlink()
        except OSError as error:
            raise DumpError(f"{folder}: cannot be read: {error.strerror}") from None


def _numbered(executions: Mapping[_Execution, Sequence[_File]]) -> Iterator[tuple[str, _Numbered]]:
    """Yield executions by the names of their records, in their order."""
    numbers: dict[str, int] = defaultdict(int)
    for execution in sorted(executions):
        number = numbers[execution.op]
        numbers[execution.op] += 1
        yield record_name(execution.type, execution.op, number), _Numbered(execution, number, executions[execution])
