"""A tree of converted files as a `Dump`: each execution of a kernel is a record, each file one of its values.

Records are named ``Kernel.{op}.{number}.forward`` in the order of the files' times; the number counts the executions of
one op, so that two runs find each other by op and order whatever the times were.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msprobe_hooks.dump.converted.layout import NAME_IN_WORDS, SUFFIX, KernelFile, parse_name, tree_of
from msprobe_hooks.dump.kernels import SIDES, Kernel, KernelDump, Side, encoded, unreadable
from msprobe_hooks.dump.npy import dtype_name, header_of
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.static_graph.layout import KERNEL_LEVEL
from msprobe_hooks.errors import DumpError


class _Execution(NamedTuple):
    """What the files of one execution share, in the order of executions."""

    time: int
    task: int
    stream: int
    op: str
    type: str


@dataclass(frozen=True)
class ConvertedDump(KernelDump):
    """A tree of converted files; ``home`` is its folder."""

    home: Path

    @property
    def tensor_folder(self) -> Path:
        """The folder from which files are named."""
        return self.home

    @property
    def has_statistics(self) -> bool:
        """Nothing is told but by the files."""
        return False


def read_tree(path: Path) -> ConvertedDump:
    """Read the tree that goes by a file: names and headers, no values.

    Raises DumpError where it cannot be read, or one of its files has no converted file's name.
    """
    home = tree_of(path)
    executions: dict[_Execution, list[_Tensor]] = defaultdict(list)
    for folder, name in _files(home):
        named = parse_name(name)
        if named is None:
            raise DumpError(
                f"{Path(folder, name)}: not the name of a converted kernel file, {NAME_IN_WORDS}; take the file out of "
                "the folder"
            )
        execution = _Execution(named.time, named.task, named.stream, named.op, named.type)
        executions[execution].append(_tensor(named, folder, name, home))
    kernels = {kernel.record: kernel for kernel in _numbered(executions)}
    return ConvertedDump(
        path=path,
        task="tensor",
        level=KERNEL_LEVEL,
        framework="pytorch",
        records=encoded(kernels),
        kernels=kernels,
        home=home,
    )


def _files(home: Path) -> Iterator[tuple[str, str]]:
    """Yield the folder and the name of each file."""

    def refuse(error: OSError) -> None:
        raise DumpError(f"{error.filename}: cannot be read: {error.strerror}") from None

    for folder, _, names in os.walk(str(home), onerror=refuse):
        yield from ((folder, name) for name in sorted(names) if name.endswith(SUFFIX))


class _Tensor(NamedTuple):
    """A tensor of a kernel; ``problem`` says why its file cannot be read."""

    side: Side
    slot: int
    element: TensorElement
    problem: str


def _tensor(named: KernelFile, folder: str, name: str, home: Path) -> _Tensor:
    shape: tuple[int, ...] = ()
    dtype = problem = ""
    file = os.path.join(folder, name)  # noqa: PTH118
    try:
        header = header_of(file)
        shape, dtype = header.shape, dtype_name(header.dtype)
    except (OSError, ValueError) as error:
        problem = unreadable(file, error)
    place = file[len(str(home)) :].lstrip(os.sep).replace(os.sep, "/")
    return _Tensor(
        SIDES[named.side], named.slot, TensorElement("numpy.ndarray", dtype, shape, data_name=place), problem
    )


def _numbered(executions: Mapping[_Execution, Sequence[_Tensor]]) -> Iterator[Kernel]:
    numbers: dict[str, int] = defaultdict(int)
    for execution in sorted(executions):
        sides: dict[Side, dict[int, TensorElement]] = {"input": {}, "output": {}}
        own = sorted(executions[execution], key=lambda tensor: (tensor.side, tensor.slot))
        for tensor in own:
            sides[tensor.side][tensor.slot] = tensor.element
        problems = tuple(tensor.problem for tensor in own if tensor.problem)
        yield Kernel(execution.type, execution.op, numbers[execution.op], sides["input"], sides["output"], problems)
        numbers[execution.op] += 1
