"""msprobe's two result tables, so that scripts made for them keep working.

Columns, order, names and spellings are those of ``accuracy_checking_result_*.csv`` and
``accuracy_checking_details_*.csv``.
"""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import IO, Any

import pytest

from pytest_msprobe.results import DirectionResult, OutputResult, from_plain

_RESULT_HEADER = ("API name", "Forward Test Success", "Backward Test Success", "Message")

# The header's words are msprobe's own; beside each is the metric that fills it.
METRIC_COLUMNS = {
    "余弦相似度": "cosine_sim",
    "最大绝对误差": "max_abs_err",
    "双百指标": "rel_err_hundredth",
    "双千指标": "rel_err_thousandth",
    "双万指标": "rel_err_ten_thousandth",
    "二进制一致错误率": "error_rate",
    "误差均衡性": "eb",
    "均方根误差": "rmse",
    "小值域错误占比": "small_value_err_ratio",
    "相对误差最大值": "max_rel_error",
    "相对误差平均值": "mean_rel_error",
    "inf/nan错误率": "inf_nan_error_ratio",
    "相对误差错误率": "rel_err_ratio",
    "绝对误差错误率": "abs_err_ratio",
    "ULP误差最大值": "max_ulp_error",
    "ULP误差平均值": "mean_ulp_error",
    "ULP误差大于阈值占比": "ulp_error_proportion",
}
_DETAILS_HEADER = ("API Name", "Bench Dtype", "DEVICE Dtype", "Shape", *METRIC_COLUMNS, "Status", "Message")

STATUS = {"pass": "pass", "warn": "Warning", "fail": "error", "skip": "SKIP"}
BLANK = " "


class CsvReport:
    """Writes the details as items settle, and one line per API at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
        self._results: dict[str, dict[str, DirectionResult]] = {}
        self._details: IO[str] | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what is known of one record."""
        plain = getattr(report, "msprobe", None)
        if plain is None:
            return
        result = from_plain(plain)
        key, _, direction = result.record.rpartition(".")
        self._results.setdefault(key, {})[direction] = result
        if self._details is None:
            self._details = self._create("details", _DETAILS_HEADER)
        csv.writer(self._details).writerows(_details_rows(result))
        self._details.flush()

    def pytest_sessionfinish(self) -> None:
        """Write the result table and close the files."""
        if self._details is None:
            return
        self._details.close()
        with self._create("result", _RESULT_HEADER) as file:
            csv.writer(file).writerows(_result_row(key, directions) for key, directions in self._results.items())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the files are."""
        if self._details is not None:
            terminalreporter.line(f"msprobe tables: {self._path('result')} and {self._path('details').name}")

    def _path(self, kind: str) -> Path:
        return self._folder / f"accuracy_checking_{kind}_{self._stamp}.csv"

    def _create(self, kind: str, header: tuple[str, ...]) -> IO[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._path(kind).open("w", encoding="utf-8-sig", newline="")
        csv.writer(file).writerow(header)
        return file


def _result_row(key: str, directions: dict[str, DirectionResult]) -> list[str]:
    forward, backward = directions.get("forward"), directions.get("backward")
    row = [key, _status(forward), _status(backward)]
    message = next((result.verdict.reason for result in (forward, backward) if result and result.skip), None)
    return row if message is None else [*row, message]


def _status(result: DirectionResult | None) -> str:
    return STATUS[result.verdict.outcome] if result else BLANK


def _details_rows(result: DirectionResult) -> list[list[Any]]:
    if not result.outputs:
        blanks = [BLANK] * (len(_DETAILS_HEADER) - 3)
        return [[result.record, *blanks, _status(result), result.verdict.reason]]
    # msprobe gives a random result no row: it has no golden value to be measured against.
    judged = (output for output in result.outputs if output.golden_dtype or output.verdict.standard != "random")
    return [_details_row(f"{result.record}.output.{i}", output) for i, output in enumerate(judged)]


def _details_row(name: str, output: OutputResult) -> list[Any]:
    metrics = (_cell(output.measured.get(metric)) for metric in METRIC_COLUMNS.values())
    shape = str(tuple(output.shape)) if output.target_dtype else BLANK
    dtypes = (output.golden_dtype or BLANK, output.target_dtype or BLANK)
    return [name, *dtypes, shape, *metrics, STATUS[output.verdict.outcome], output.verdict.reason]


def _cell(value: float | None) -> str:
    return BLANK if value is None else f"{value:.14g}"
