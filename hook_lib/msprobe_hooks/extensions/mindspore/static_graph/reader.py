"""An iteration of a static graph as a `Dump`: a record for each execution of a kernel, and the tensors of its files.

Records are named ``Kernel.{op}.{number}.{direction}`` in the order in which kernels ran. ``op`` is the kernel's scope
with ``_`` in place of ``/``; the number counts the executions of one op; what MindSpore derived for the gradient is
backward. The graph's parameters, written when it has ended, are ``Parameter.{name}.{number}.forward``.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import ClassVar

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.json_records import SIDES, Kernel, KernelDump, Side, encoded, unreadable
from msprobe_hooks.dump.npy import dtype_name, header_of
from msprobe_hooks.dump.reader import DumpKind
from msprobe_hooks.dump.recording_paths import (
    KERNEL_LEVEL,
    MAPPING_FILE,
    STATISTIC_FILE,
    TENSOR_SUFFIX,
    graph_folders,
    net_folder,
)
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import (
    Flow,
    GraphSurroundings,
    IrNode,
    graph_texts,
    kernel_nodes,
    read_ir,
    without_number,
)
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Statement
from msprobe_hooks.messages import clipped, id_name
from msprobe_hooks.regular_files import read_regular

_NAME = re.compile(
    r"(?P<type>[^.]+)\.(?P<op>.+)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d+)"
    r"\.(?P<side>input|output)\.(?P<slot>\d+)\.(?P<format>[A-Za-z_]\w*)(?:\.(?P<dtype>\w+))?"
)
_NAME_IN_WORDS = "Type.Op.task.stream.time.input.slot.format.npy"
_TENSOR_TYPE = "mindspore.Tensor"
# What numpy calls otherwise than MindSpore but for capitals.
_CAPITALS = {"uint": "UInt"}
_COLUMNS = ("Op Type", "Op Name", "Timestamp", "IO", "Slot", "Data Type", "Shape")
_STATISTICS = ("Max Value", "Min Value", "Avg Value", "L2Norm Value")
_WORDS = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class KernelTensor:
    """One tensor that went into or came out of a kernel. ``time`` is when it was written, in microseconds.

    ``problem`` says what is wrong with its file, where it cannot be read.
    """

    type: str
    op: str
    time: int
    side: Side
    slot: int
    element: TensorElement
    problem: str = ""


def read_tensors(folder: Path, home: Path) -> Iterator[KernelTensor]:
    """Yield the tensors of one folder of an iteration; files are named as seen from ``home``.

    Raises DumpError where a file's name, or ``statistic.csv``, cannot be read.
    """
    files = sorted(folder.glob(f"*{TENSOR_SUFFIX}"))
    if files:
        full_names = _full_names(folder / MAPPING_FILE)
        for file in files:
            yield _read_file(file, home, full_names)
    elif (folder / STATISTIC_FILE).is_file():
        yield from _read_statistics(folder / STATISTIC_FILE)


def _full_names(path: Path) -> dict[str, str]:
    """Return the names of files that were too long, by the numbers that stand for them."""
    if not path.is_file():
        return {}
    rows = (row for row in table_rows(path) if len(row) > 1 and row[0].removesuffix(TENSOR_SUFFIX).isdigit())
    return {row[0].removesuffix(TENSOR_SUFFIX): row[1].removesuffix(TENSOR_SUFFIX) for row in rows}


def _read_file(file: Path, home: Path, full_names: dict[str, str]) -> KernelTensor:
    named = _NAME.fullmatch(full_names.get(file.stem, file.stem))
    if named is None and file.stem.isdigit():
        raise DumpError(
            f"{file}: the number replaces a name that was too long, and no {MAPPING_FILE} next to it lists it; copy "
            "that file from where the graph ran"
        )
    if named is None:
        raise DumpError(f"{file}: not the name of a kernel's tensor, {_NAME_IN_WORDS}; move the file out of the folder")
    shape: tuple[int, ...] = ()
    dtype, problem = named["dtype"] or "", ""
    try:
        header = header_of(file)
        shape = header.shape
        # numpy lacks bfloat16, of which MindSpore writes float32.
        dtype = dtype if dtype.lower() == "bfloat16" else _mindspore_dtype(dtype_name(header.dtype))
    except (OSError, ValueError) as error:
        problem = unreadable(file, error)
    element = TensorElement(_TENSOR_TYPE, dtype, shape, data_name=file.relative_to(home).as_posix())
    return KernelTensor(
        named["type"],
        id_name(named["op"]),
        int(named["time"]),
        SIDES[named["side"]],
        int(named["slot"]),
        element,
        problem,
    )


def _mindspore_dtype(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{_CAPITALS.get(kind, kind.capitalize())}{name[len(kind) :]}"


def _read_statistics(path: Path) -> Iterator[KernelTensor]:
    titles, *rows = table_rows(path) or [[]]
    places = {title.strip(): place for place, title in enumerate(titles)}
    missing = [title for title in _COLUMNS if title not in places]
    if missing:
        raise DumpError(f"{path}: has no column {missing[0]!r}, so it is not of a static graph; record it again")
    for number, row in enumerate(rows, start=2):
        cells = {title: row[place].strip() for title, place in places.items() if place < len(row)}
        try:
            yield _of_row(cells)
        except (KeyError, ValueError):
            text = clipped(",".join(row))
            raise DumpError(f"{path}: line {number} is damaged: {text}; copy the file again") from None


def _of_row(cells: dict[str, str]) -> KernelTensor:
    shape = tuple(map(int, re.findall(r"\d+", cells["Shape"])))
    greatest, least, mean, norm = (_number(cells.get(title, "")) for title in _STATISTICS)
    checksum = cells.get("MD5") or None
    element = TensorElement(_TENSOR_TYPE, cells["Data Type"], shape, greatest, least, mean, norm, checksum=checksum)
    op = id_name(cells["Op Name"].replace("/", "_"))
    return KernelTensor(cells["Op Type"], op, int(cells["Timestamp"]), SIDES[cells["IO"]], int(cells["Slot"]), element)


def _number(cell: str) -> float | bool | None:
    return _WORDS[cell] if cell in _WORDS else None if cell in ("", "null") else float(cell)


def table_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table that are not empty. Raises DumpError where it cannot be read."""
    try:
        text = read_regular(path).decode("utf-8-sig")
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DumpError(f"{path}: not a table: {error}; copy the file again") from None


# What MindSpore makes of one operation, forward or backward.
_EXPANDED = "Expand/"


@dataclass(frozen=True)
class GraphDump(KernelDump):
    """One iteration of the graphs of a process."""

    kind: ClassVar[DumpKind] = "static graph"

    @property
    def tensor_folder(self) -> Path:
        """The folder that holds all graphs, from which files are named."""
        return net_folder(self.path)

    @property
    def has_statistics(self) -> bool:
        """Return whether the backend took statistics, or wrote the tensors alone."""
        return self.task == "statistics"

    @property
    def surroundings(self) -> Surroundings:
        """The call context in the texts of the graphs, where MindSpore wrote them next to the tensors."""
        ops = {name: kernel.op for name, kernel in self.kernels.items()}
        return GraphSurroundings(self.tensor_folder.parent, ops)

    def statement(self, kernel: Kernel) -> Statement | None:
        """Return what the graph's text says of a kernel, None where it has none, or that of another one.

        MindSpore numbers some kernels anew after it has written the text, those of expanded operations above all. What
        the text says alike of all kernels of one place that could be this one is said of it, whatever its number.
        """
        exact = self._nodes.get(kernel.op)
        if exact is not None and exact.scope.startswith(_EXPANDED):
            return None
        if exact is not None and _is_of(statement := exact.statement, kernel):
            return statement
        alike = [
            statement for node in self._alike[without_number(kernel.op)] if _is_of(statement := node.statement, kernel)
        ]
        return alike[0] if alike and all(_says_the_same(statement, alike[0]) for statement in alike) else None

    @cached_property
    def flows(self) -> Sequence[Flow]:
        """The ways of the tensors in the texts of the graphs, a flow for each text."""
        return [Flow(read_ir(text)) for text in graph_texts(self.tensor_folder.parent)]

    @cached_property
    def _nodes(self) -> Mapping[str, IrNode]:
        return kernel_nodes(self.tensor_folder.parent)

    @cached_property
    def _alike(self) -> Mapping[str, Sequence[IrNode]]:
        """The nodes of one place and type."""
        alike: dict[str, list[IrNode]] = defaultdict(list)
        for op, node in self._nodes.items():
            alike[without_number(op)].append(node)
        return alike


def read_iteration(path: Path) -> GraphDump:
    """Read what was dumped of an iteration, by one of its files: names and headers, no values.

    Raises DumpError where there is nothing, or it is damaged as a whole.
    """
    try:
        folders = graph_folders(path)
        tensors = [tensor for folder in folders for tensor in read_tensors(folder, net_folder(path))]
    except OSError as error:
        raise DumpError(f"{path.parent}: cannot be read: {error.strerror}; pass the folder of a dump") from None
    if not tensors:
        raise DumpError(f"{path.parent}: holds no kernel's tensor; the run ended before the first; dump it again")
    kernels = {kernel.record: kernel for kernel in _executed(tensors)}
    has_files = any(tensor.element.data_name for tensor in tensors)
    return GraphDump(
        path=path,
        task="tensor" if has_files else "statistics",
        level=KERNEL_LEVEL,
        framework="mindspore",
        records={name: encoded(kernel) for name, kernel in kernels.items()},
        kernels=kernels,
    )


def _executed(tensors: Iterable[KernelTensor]) -> Iterator[Kernel]:
    """Yield the executions of kernels in their order: the n-th tensor of a place is of the n-th execution of its op."""
    places: dict[tuple[str, str, Side, int], int] = defaultdict(int)
    executions: dict[tuple[str, str, int], list[KernelTensor]] = defaultdict(list)
    # A kernel's tensors are written before the next one's: the first of each gives the order.
    for tensor in sorted(tensors, key=lambda tensor: tensor.time):
        place = (tensor.type, tensor.op, tensor.side, tensor.slot)
        executions[tensor.type, tensor.op, places[place]].append(tensor)
        places[place] += 1
    numbers: dict[str, int] = defaultdict(int)
    for (kind, op, _), own in executions.items():
        sides = {side: {x.slot: x.element for x in own if x.side == side} for side in ("input", "output")}
        problems = tuple(tensor.problem for tensor in own if tensor.problem)
        yield Kernel(kind, op, numbers[op], _by_slot(sides["input"]), _by_slot(sides["output"]), problems)
        numbers[op] += 1


def _is_of(statement: Statement, kernel: Kernel) -> bool:
    return (
        statement.type == kernel.type
        and _fits(statement.inputs, kernel.inputs)
        and _fits(statement.outputs, kernel.outputs)
    )


def _says_the_same(one: Statement, other: Statement) -> bool:
    if (one.attributes, one.inputs, len(one.operands)) != (other.attributes, other.inputs, len(other.operands)):
        return False
    return all(one.constant(slot) == other.constant(slot) for slot in range(len(one.operands)))


def _fits(shapes: Sequence[tuple[int, ...] | None], tensors: Mapping[int, TensorElement]) -> bool:
    """Return whether tensors have as many elements as shapes say; a file may have the shape from before a reshape."""
    shape_of = {slot: shape for slot, shape in enumerate(shapes) if shape is not None}
    return all(slot not in shape_of or prod(shape_of[slot]) == prod(x.shape) for slot, x in tensors.items())


def _by_slot(tensors: Mapping[int, TensorElement]) -> dict[int, TensorElement]:
    return dict(sorted(tensors.items()))
