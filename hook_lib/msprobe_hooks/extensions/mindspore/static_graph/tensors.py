"""The tensors of an iteration, one by one, as its files name and hold them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.dump.kernel_dump import SIDES, Side, unreadable
from msprobe_hooks.dump.paths.static_graph import MAPPING_FILE, STATISTIC_FILE, TENSOR_SUFFIX
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.tensor_files.npy import dtype_name, header_of
from msprobe_hooks.errors import DumpError
from msprobe_hooks.escaping import id_name
from msprobe_hooks.messages import clipped
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
