"""The columns and cells of msprobe's comparison tables, and CSV files of them.

Titles and their order are msprobe's, of version 26 or of 1.2; columns of our own follow them.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.rows import STATISTICS, ComparedCall, DataMode, Row

Cell: TypeAlias = str | int | float
#: Title, and what a row shows under it.
Column: TypeAlias = tuple[str, Callable[[ComparedCall, Row], Cell]]

NOTHING = "N/A"
UNSUPPORTED = "unsupported"
SHAPES_DIFFER = "shape unmatched"
_NO_GOLDEN, _NO_TARGET = "No bench data matched.", "No NPU data matched."

_WORDS = {"pass": "pass", "warn": "warning", "fail": "error", "skip": NOTHING}

_TENSOR_TITLES = {
    "cosine_sim": "Cosine",
    "euclidean": "EucDist",
    "max_abs_err": "MaxAbsErr",
    "rel_err_max": "MaxRelativeErr",
    "rel_err_thousandth": "One Thousandth Err Ratio",
    "rel_err_five_thousandths": "Five Thousandths Err Ratio",
}
_DIFFERENCE_TITLES = dict(zip(STATISTICS, ("Max diff", "Min diff", "Mean diff", "L2norm diff"), strict=True))
_RELATIVE_TITLES = dict(
    zip(STATISTICS, ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"), strict=True)
)
_STATISTIC_TITLES = ("max", "min", "mean", "l2norm")


def columns(
    mode: DataMode,
    policy: str,
    *,
    with_stack: bool,
    files: tuple[str, str] | None = None,
    metrics: Iterable[str] = (),
    is_transformed: bool = False,
) -> list[Column]:
    """Return the columns of a table: those of msprobe 1.2 for its policy, of version 26 otherwise.

    The default policy adds our own. In all, the user's ``metrics`` follow and, where ``is_transformed``, what was done
    to values first. ``with_stack``: whether a call stack was recorded. Kernels of static graphs
    have a table of their own, the same in both versions; ``files`` then names what both sides were read from.
    """
    table = _columns(mode, policy, with_stack, files)
    table += [_own_metric(name) for name in metrics] if mode == "tensor" else []
    return [*table, ("Transformed", lambda _, row: "; ".join(row.transformed))] if is_transformed else table


def _columns(mode: DataMode, policy: str, with_stack: bool, files: tuple[str, str] | None) -> list[Column]:
    if files is not None:
        return [*_of_kernels(mode, files), *_stack(with_stack), *([] if policy.startswith("msprobe") else _OURS)]
    if policy == "msprobe-1.2":
        return _version_1_2(mode, with_stack)
    return [*_version_26(mode, with_stack), *(_OURS if policy != "msprobe-26" else [])]


def file_columns(policy: str) -> list[Column]:
    """Return the columns of msprobe's batch comparison of converted kernel files; the default policy adds our own."""
    return [*_OF_FILES, *(_OUTCOME_OF_FILES if not policy.startswith("msprobe") else [])]


def cells(call: ComparedCall, layout: list[Column]) -> Iterator[list[Cell]]:
    """Yield the cells of each row of a call."""
    for row in call.rows:
        yield [cell(call, row) for _, cell in layout]


def _version_1_2(mode: DataMode, with_stack: bool) -> list[Column]:
    table = _named()
    if mode == "md5":
        table += [*_checksums(), ("Result", _md5_result)]
        return [*table, *_stack(with_stack)]
    if mode == "tensor":
        table += [_tensor_metric(name) for name in _TENSOR_TITLES if name != "euclidean"]
        table += [*_statistics(), ("Accuracy Reached or Not", _accuracy), ("Err_message", _messages)]
        return [*table, *_stack(with_stack), ("Data_name", lambda _, row: _data_name(row.target))]
    table += [*_differences(), *_statistics(), ("Result", _warning), ("Err_message", _messages)]
    return [*table, *_stack(with_stack)]


def _of_kernels(mode: DataMode, files: tuple[str, str]) -> list[Column]:
    accuracy = _accuracy if mode == "tensor" else _accuracy_by_statistics
    table = [*_named(), *_statistics(), ("Accuracy Reached or Not", accuracy), ("Err_message", _messages)]
    if mode == "tensor":
        return [*table, *map(_tensor_metric, _TENSOR_TITLES)]
    target, golden = files
    return [*table, *_differences(), ("NPU CSV File", lambda *_: target), ("Bench CSV File", lambda *_: golden)]


def _version_26(mode: DataMode, with_stack: bool) -> list[Column]:
    table = [
        *_named(),
        ("NPU Requires_grad", lambda _, row: _requires_grad(row.target)),
        ("Bench Requires_grad", lambda _, row: _requires_grad(row.golden)),
    ]
    if mode == "tensor":
        table += [*(_tensor_metric(name) for name in _TENSOR_TITLES), *_statistics()]
    elif mode == "statistics":
        table += [*_differences(), *_statistics()]
    else:
        table += _checksums()
    table += [
        ("Requires_grad Consistent", _consistent),
        ("Result", lambda _, row: _WORDS[row.outcome]),
        ("Err_message", _levelled_messages),
    ]
    table += _stack(with_stack)
    if mode == "tensor":
        table.append(("Data_name", lambda _, row: str([_data_name(row.target), _data_name(row.golden)])))
    return table


_OURS: list[Column] = [
    ("Scaled error", lambda _, row: number(row.metrics.get("scaled_error"))),
    ("Max ULP", lambda _, row: number(row.metrics.get("max_ulp_error"))),
    ("Worst index", lambda _, row: str(list(row.worst)) if row.worst is not None else NOTHING),
    ("Cause", lambda call, row: call.cause if row.differs else ""),
    ("Module", lambda call, _: call.module),
]


_OF_FILES: list[Column] = [
    ("NPU File Name", lambda _, row: _file_name(row.target)),
    ("Bench File Name", lambda _, row: _file_name(row.golden)),
    ("Mean", lambda _, row: _mean(row.target)),
    ("Bench Mean", lambda _, row: _mean(row.golden)),
    ("Md5 Consistency", lambda _, row: _are_equal(row)),
    ("Max Abs Error", lambda _, row: _metric(row, "max_abs_err", NOTHING)),
    ("Max Relative Error", lambda _, row: _metric(row, "rel_err_max", NOTHING)),
]
_OUTCOME_OF_FILES: list[Column] = [
    ("Result", lambda _, row: _WORDS[row.outcome]),
    ("Err_message", lambda _, row: "\n".join(row.messages)),
    *_OURS[:-1],
]


def _file_name(value: Value | None) -> str:
    return value.data_name.rpartition("/")[2] if value is not None and value.data_name else NOTHING


def _mean(value: Value | None) -> Cell:
    return number(value.statistics[2] if value is not None and value.statistics is not None else None)


def _are_equal(row: Row) -> str:
    return str(row.metrics["scaled_error"] == 0) if "scaled_error" in row.metrics else NOTHING


def _named() -> list[Column]:
    return [
        ("NPU Name", lambda _, row: row.target.name if row.target else NOTHING),
        ("Bench Name", lambda _, row: row.golden.name if row.golden else NOTHING),
        ("NPU Dtype", lambda _, row: _dtype(row.target)),
        ("Bench Dtype", lambda _, row: _dtype(row.golden)),
        ("NPU Tensor Shape", lambda _, row: _shape(row.target)),
        ("Bench Tensor Shape", lambda _, row: _shape(row.golden)),
    ]


def _tensor_metric(name: str) -> Column:
    return _TENSOR_TITLES[name], lambda _, row: _metric(row, name)


def _own_metric(name: str) -> Column:
    return name, lambda _, row: _metric(row, name, NOTHING)


def _differences() -> list[Column]:
    differences: list[Column] = [(title, _difference(name)) for name, title in _DIFFERENCE_TITLES.items()]
    return [*differences, *((title, _relative(name)) for name, title in _RELATIVE_TITLES.items())]


def _difference(name: str) -> Callable[[ComparedCall, Row], Cell]:
    return lambda _, row: _metric(row, f"{name}_diff", NOTHING)


def _relative(name: str) -> Callable[[ComparedCall, Row], Cell]:
    def cell(_: ComparedCall, row: Row) -> Cell:
        value = row.metrics.get(f"{name}_rel_diff")
        if value is None or not math.isfinite(value):
            return number(value)
        return f"{value * 100}%" if value else 0

    return cell


def _statistics() -> list[Column]:
    table: list[Column] = []
    for side, of in (("NPU", lambda row: row.target), ("Bench", lambda row: row.golden)):
        for place, title in enumerate(_STATISTIC_TITLES):
            table.append((f"{side} {title}", _statistic(of, place)))
    return table


def _statistic(of: Callable[[Row], Value | None], place: int) -> Callable[[ComparedCall, Row], Cell]:
    def cell(_: ComparedCall, row: Row) -> Cell:
        value = of(row)
        if value is None:
            return NOTHING
        if value.statistics is not None:
            return number(value.statistics[place])
        return NOTHING if value.is_tensor else value.text or "None"

    return cell


def _checksums() -> list[Column]:
    return [
        ("NPU MD5", lambda _, row: (row.target and row.target.checksum) or NOTHING),
        ("BENCH MD5", lambda _, row: (row.golden and row.golden.checksum) or NOTHING),
    ]


def _stack(is_selected: bool) -> list[Column]:
    def cell(call: ComparedCall, row: Row) -> Cell:
        return str(list(call.stack)) if call.stack and row is call.rows[0] else "None"

    return [("NPU_Stack_Info", cell)] if is_selected else []


def number(value: float | bool | None) -> Cell:
    """Return a number as a cell shows it: words for what a spreadsheet has no number for."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return str(value)
    return value if math.isfinite(value) else str(value)


def _metric(row: Row, name: str, nothing: str = UNSUPPORTED) -> Cell:
    if name in row.metrics:
        return number(row.metrics[name])
    return {"unmatched": NOTHING, "shape": SHAPES_DIFFER}.get(row.unmeasured, nothing)


def _dtype(value: Value | None) -> str:
    if value is None:
        return NOTHING
    if value.dtype or "." in value.type:
        return value.dtype or value.type
    return f"<class '{value.type}'>" if value.type else "None"


def _shape(value: Value | None) -> str:
    return NOTHING if value is None else str(list(value.shape))


def _requires_grad(value: Value | None) -> str:
    return NOTHING if value is None else str(value.requires_grad)


def _consistent(_: ComparedCall, row: Row) -> str:
    if row.target is None or row.golden is None:
        return NOTHING
    return str(row.target.requires_grad == row.golden.requires_grad)


def _data_name(value: Value | None) -> str:
    return (value and value.data_name) or "-1"


def _messages(_: ComparedCall, row: Row) -> str:
    return _NO_GOLDEN if row.golden is None else "\n".join(row.messages)


def _levelled_messages(_: ComparedCall, row: Row) -> str:
    messages = [f"{_WORDS[row.outcome]}: {message}" for message in row.messages]
    if row.outcome == "skip":
        absence = _NO_GOLDEN if row.golden is None else _NO_TARGET
        messages = [absence] if row.unmeasured == "unmatched" else [*row.messages]
    return json.dumps(messages, ensure_ascii=False) if messages else "[]"


def _accuracy(_: ComparedCall, row: Row) -> str:
    if row.unmeasured == "shape":
        return "Unmatched"
    if row.target is None or row.golden is None:
        return NOTHING
    if "max_abs_err" not in row.metrics:
        return "None"
    return "No" if row.outcome == "fail" else "Yes"


def _accuracy_by_statistics(_: ComparedCall, row: Row) -> str:
    if row.target is None or row.golden is None:
        return NOTHING
    return "No" if row.outcome == "fail" else "Yes"


def _warning(_: ComparedCall, row: Row) -> str:
    if row.target is None or row.golden is None:
        return NOTHING
    return "Warning" if row.differs else ""


def _md5_result(_: ComparedCall, row: Row) -> str:
    if row.target is None or row.golden is None:
        return NOTHING
    return "pass" if row.outcome == "pass" else "Different"


# What a spreadsheet program takes for a formula, in either width.
_FORMULA = re.compile("[\t\r=+\\-@\uff0b\uff0d\uff1d\uff05\uff20%]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?%?|[+-]?(inf|nan)|-1", re.IGNORECASE)


def write_csv(path: Path, calls: Iterable[ComparedCall], layout: list[Column]) -> int:
    """Write a table, row by row, and return the number of its rows. Raises OSError where the disk refuses."""
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([title for title, _ in layout])
        for call in calls:
            for row in cells(call, layout):
                writer.writerow([neutral(cell) for cell in row])
                rows += 1
    return rows


def neutral(cell: Cell) -> Cell:
    """Return a cell that no spreadsheet program takes for a formula: an apostrophe goes before what looks like one."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
