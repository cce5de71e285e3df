"""msprobe's two tables of a comparison, so that scripts made for them keep working.

Columns, order, names and spellings are those of ``api_precision_compare_result_*.csv`` and
``api_precision_compare_details_*.csv``.
"""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msprobe_hooks.dump.names import split_direction
from msprobe_standards.msprobe_rules import ratio_floor
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.extensions.msprobe_commands.comparison import ComparedOutput, ComparedRecord
from pytest_msprobe.modes.check.baselines.recorded_result import torch_dtype
from pytest_msprobe.reports.csv import BLANK, STATUS, as_text
from pytest_msprobe.storage.files import atomic_write

Cells = dict[str, str]

_ALGORITHMS = {
    "msprobe_benchmark": "标杆比对法",
    "msprobe_ulp": "ULP误差比对法",
    "binary_consistency": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "thousandth": "双千指标法",
    "accumulative_error": "累积误差比对法",
}

# Metric, column of its ratio to the baseline's, column of the status.
_RATIOS = (
    ("small_value_err_ratio", "小值域错误比值", "小值域判定结果"),
    ("rmse", "均方根误差比值", "均方根误差判定结果"),
    ("max_rel_error", "相对误差最大值比值", "相对误差最大值判定结果"),
    ("mean_rel_error", "相对误差平均值比值", "相对误差平均值判定结果"),
    ("eb", "误差均衡性比值", "误差均衡性判定结果"),
)
_SHARES = (
    ("inf_nan_error_ratio", "inf/nan错误率", "inf/nan判定结果"),
    ("rel_err_ratio", "相对误差错误率", "相对误差判定结果"),
    ("abs_err_ratio", "绝对误差错误率", "绝对误差判定结果"),
)
_EQUALITY = ("二进制一致错误率", "二进制一致错误率判定结果")
_ULP = ("ULP误差平均值", "ULP误差大于阈值占比", "ULP误差大于阈值占比比值", "ULP误差判定结果")
_THOUSANDTH = ("双千指标", "双千指标判定结果")
_RESULT, _ALGORITHM = "比对结果", "比对算法"

RESULT_HEADER = ("API Name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    "API Name",
    *(column for _, *columns in (*_RATIOS, *_SHARES) for column in columns),
    *_EQUALITY,
    *_ULP,
    *_THOUSANDTH,
    _RESULT,
    _ALGORITHM,
    "Message",
)

# msprobe shows the status of the error balance and does not count it.
_BALANCE_RATIO = 2.0


def write_tables(folder: Path, records: Iterable[ComparedRecord]) -> tuple[Path, Path]:
    """Write the result and the details table into a folder and return their paths.

    Raises BaselineError where they cannot be written.
    """
    stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
    names = [folder / f"api_precision_compare_{kind}_{stamp}.csv" for kind in ("result", "details")]
    records = list(records)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(names[0]) as result, atomic_write(names[1]) as details:
            _write(result, RESULT_HEADER, _result_rows(records))
            _write(details, DETAILS_HEADER, (row for record in records for row in _details_rows(record)))
    except OSError as error:
        raise BaselineError(f"cannot be written: {error.strerror}", file=folder) from None
    return names[0], names[1]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8-sig", newline="", errors="backslashreplace") as file:
        csv.writer(file).writerows([header, *rows])


def _result_rows(records: Iterable[ComparedRecord]) -> list[list[str]]:
    calls: dict[str, dict[str, ComparedRecord]] = {}
    for record in records:
        key, direction = split_direction(record.result.record)
        calls.setdefault(key, {})[direction] = record
    return [_result_row(key, directions) for key, directions in calls.items()]


def _result_row(key: str, directions: Mapping[str, ComparedRecord]) -> list[str]:
    both = [directions.get(direction) for direction in ("forward", "backward")]
    statuses = [STATUS[record.result.verdict.outcome] if record else BLANK for record in both]
    reasons = [record.result.verdict.reason for record in both if record and record.result.verdict.outcome != "pass"]
    return [as_text(key), *statuses, as_text("; ".join(reasons)) or BLANK]


def _details_rows(record: ComparedRecord) -> list[list[str]]:
    if not record.outputs:
        verdict = record.result.verdict
        return [_row(record.result.record, {_RESULT: STATUS[verdict.outcome]}, verdict.reason)]
    return [_output_row(output) for output in record.outputs]


def _output_row(output: ComparedOutput) -> list[str]:
    verdict, standard = output.result.verdict, output.standard
    cells: Cells = {_RESULT: STATUS[verdict.outcome]}
    if standard is not None and verdict.outcome != "skip":
        fill = _FILLERS.get(standard.name)
        cells |= {
            _ALGORITHM: _ALGORITHMS.get(standard.name, standard.name),
            **(fill(output) if fill and output.row.metrics else {}),
        }
    return _row(output.name, cells, verdict.reason)


def _row(name: str, cells: Cells, message: str) -> list[str]:
    named = {**cells, "API Name": as_text(name), "Message": as_text(message) or BLANK}
    return [named.get(column, BLANK) for column in DETAILS_HEADER]


def _benchmark(output: ComparedOutput) -> Cells:
    cells: Cells = {}
    for metric, column, status in _RATIOS:
        ratio = _ratio(output, metric)
        if ratio is not None:
            limit = _BALANCE_RATIO if metric == "eb" else getattr(output.standard, metric)
            cells |= {column: _number(ratio), status: _status(ratio <= limit)}
    return cells


def _ratio(output: ComparedOutput, metric: str) -> float | None:
    dtype = torch_dtype(output.row.dtype)
    baseline = output.baseline.metrics if output.baseline else {}
    if dtype is None or metric not in output.row.metrics or metric not in baseline:
        return None
    base = baseline[metric]
    return output.row.metrics[metric] / max(base, ratio_floor(dtype)) if math.isfinite(base) else math.inf


def _ulp(output: ComparedOutput) -> Cells:
    mean, share, of_baseline, status = _ULP
    ratio = _ratio(output, "ulp_error_proportion")
    return {
        mean: _number(output.row.metrics["mean_ulp_error"]),
        share: _number(output.row.metrics["ulp_error_proportion"]),
        of_baseline: BLANK if ratio is None else _number(ratio),
        status: STATUS[output.result.verdict.outcome],
    }


def _shares(output: ComparedOutput) -> Cells:
    # The verdict's own numbers are those that its standard's bounds counted.
    numbers = {**output.row.metrics, **output.result.verdict.metrics}
    cells: Cells = {}
    for metric, column, status in _SHARES:
        cells |= {column: _number(numbers[metric]), status: _status(numbers[metric] == 0)}
    return cells


def _accumulative(output: ComparedOutput) -> Cells:
    _, column, status = _RATIOS[-1]
    balance = output.row.metrics["eb"]
    allowed = output.result.verdict.limits.get("eb", math.inf)
    return {**_shares(output), column: _number(balance), status: _status(balance <= allowed)}


def _equality(output: ComparedOutput) -> Cells:
    rate, status = _EQUALITY
    value = output.row.metrics.get("error_rate")
    number = {} if value is None else {rate: _number(value)}
    return {**number, status: STATUS[output.result.verdict.outcome]}


def _thousandth(output: ComparedOutput) -> Cells:
    share, status = _THOUSANDTH
    number = _number(output.row.metrics["rel_err_thousandth"])
    return {share: number, status: STATUS[output.result.verdict.outcome]}


_FILLERS: Mapping[str, Callable[[ComparedOutput], Cells]] = {
    "msprobe_benchmark": _benchmark,
    "msprobe_ulp": _ulp,
    "absolute_threshold": _shares,
    "accumulative_error": _accumulative,
    "binary_consistency": _equality,
    "thousandth": _thousandth,
}


def _status(fine: bool) -> str:
    return STATUS["pass" if fine else "fail"]


def _number(value: float) -> str:
    return f"{value:.14f}"
