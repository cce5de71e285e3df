"""msprobe's ``accuracy_checking_details_*.csv``, of a run on a GPU say, read as a baseline."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path

from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.tensor_folder import OutputRow, RecordRow
from pytest_msprobe.reports.csv import METRIC_COLUMNS, STATUS

_OUTCOMES = {status: outcome for outcome, status in STATUS.items()}
_NAME = re.compile(r"(?P<record>.+\.(?:forward|backward))\.output\.(?P<index>\d+)")
_SIZE = re.compile(r"\d+")


def read_details(path: Path) -> list[RecordRow]:
    """Return the rows of a details table, one per record, in the table's order.

    An output's path is ``output.0`` and so on. A table does not say how many elements disagree in NaN or inf:
    ``nonfinite_mismatch`` is 1 where any of its numbers shows that some do.

    Raises BaselineError where the file is no such table, is cut short, or has two rows of one name.
    """
    try:
        text = read_regular(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _foreign(path) if isinstance(error, UnicodeDecodeError) else _unreadable(path, error) from None
    records: dict[str, list[OutputRow]] = {}
    whole: dict[str, RecordRow] = {}
    names: set[str] = set()
    for number, cells in _rows(path, text):
        name = cells["API Name"]
        if name in names:
            raise BaselineError(f"line {number}: {name!r} occurs twice", file=path, remedy="keep one of the rows")
        names.add(name)
        if match := _NAME.fullmatch(name):
            try:
                output = _output(f"output.{match['index']}", cells)
            except ValueError as error:
                raise BaselineError(f"line {number}: {name!r}: {error}", file=path) from None
            records.setdefault(match["record"], []).append(output)
        else:
            whole[name] = RecordRow(name, outcome=_outcome(cells), reason=cells.get("Message", "").strip())
    rows = [_record(name, outputs) for name, outputs in records.items()]
    return [*rows, *(row for name, row in whole.items() if name not in records)]


def _record(name: str, outputs: list[OutputRow]) -> RecordRow:
    # msprobe 26 infers float8 inputs so: for those alone it counts relative errors and nothing else.
    float8 = any("rel_err_ratio" in output.metrics and "rmse" not in output.metrics for output in outputs)
    inputs = ("torch.float8_e4m3fn",) if float8 else ()
    return RecordRow(name, input_dtypes=inputs, outputs=tuple(outputs), of_table=True)


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if not {"API Name", "DEVICE Dtype", "Shape", *METRIC_COLUMNS} <= set(reader.fieldnames or ()):
            raise _foreign(path)
        for cells in reader:
            if None in cells or None in cells.values():
                raise BaselineError(
                    f"{path}: line {reader.line_num} has another number of cells than the header; the table is damaged"
                )
            yield reader.line_num, cells
    except csv.Error as error:
        raise BaselineError(f"line {reader.line_num} is damaged: {error}", file=path) from None


def _output(path: str, cells: dict[str, str]) -> OutputRow:
    dtype = cells["DEVICE Dtype"].strip()
    metrics = {}
    for column, metric in METRIC_COLUMNS.items():
        if text := cells[column].strip():
            metrics[metric] = float(text)
    wrong = metrics.get("inf_nan_error_ratio", 0.0) > 0 or not all(map(math.isfinite, metrics.values()))
    return OutputRow(
        path=path,
        outcome=_outcome(cells),
        reason=cells.get("Message", "").strip(),
        dtype=dtype if dtype.startswith("torch.") else "",
        golden_dtype=cells.get("Bench Dtype", "").strip(),
        shape=tuple(int(size) for size in _SIZE.findall(cells["Shape"])),
        metrics=metrics | {"nonfinite_mismatch": float(wrong)} if metrics else {},
    )


def _outcome(cells: dict[str, str]) -> str:
    return _OUTCOMES.get(cells.get("Status", "").strip(), "")


def _foreign(path: Path) -> BaselineError:
    return BaselineError(
        f"{path}: neither a baseline nor msprobe's details table; pass a file written by --msprobe-save-baseline, or "
        "accuracy_checking_details_*.csv"
    )


def _unreadable(path: Path, error: OSError) -> BaselineError:
    return BaselineError(f"cannot be read: {error.strerror}", file=path)
