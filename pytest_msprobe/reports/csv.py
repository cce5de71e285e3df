"""msprobe's two result tables, so that scripts made for them keep working.

Columns, order, names and spellings are those of ``accuracy_checking_result_*.csv`` and
``accuracy_checking_details_*.csv``.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from msprobe_hooks.dump.layout import DUMP_FILE
from msprobe_hooks.dump.names import split_direction
from pytest_msprobe.reports.unwritten import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.perturbed import perturbed_of
from pytest_msprobe.results.result import DirectionResult, OutputResult, from_plain
from pytest_msprobe.storage.whole import whole_file

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

# As many digits as msprobe has decimals, without losing what is small.
_SIGNIFICANT = ".14g"


class Tables:
    """The two files of a dump: a details row per output as records are added, a row per call at the end.

    ``spelling`` is how numbers are formatted.
    """

    def __init__(self, folder: Path, spelling: str = _SIGNIFICANT) -> None:
        self._spelling = spelling
        stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
        self.result, self.details = (folder / f"accuracy_checking_{kind}_{stamp}.csv" for kind in ("result", "details"))
        self._calls: dict[str, dict[str, DirectionResult]] = {}
        self._open: IO[str] | None = None

    def add(self, result: DirectionResult) -> None:
        """Write the rows of a record's outputs."""
        key, direction = split_direction(result.record)
        if self._open is None:
            self._open = _append(self.details) if self._calls else _create(self.details, _DETAILS_HEADER)
        self._calls.setdefault(key, {})[direction or "forward"] = result
        csv.writer(self._open).writerows(_details_rows(result, self._spelling))
        self._open.flush()

    def pause(self) -> None:
        """Close the file until the next record comes."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def close(self) -> bool:
        """Write the row of each call and tell whether there was any; without one there are no files."""
        if not self._calls:
            return False
        self.pause()
        with whole_file(self.result) as part, _create(part, _RESULT_HEADER) as file:
            csv.writer(file).writerows(_result_row(key, directions) for key, directions in self._calls.items())
        return True

    def discard(self) -> None:
        """Remove what was written."""
        for path in (self.details, self.result):
            with contextlib.suppress(OSError):
                path.unlink()
        # What is still buffered for a full disk is lost on purpose.
        with contextlib.suppress(OSError):
            self.pause()


class TablesByDump:
    """The tables of a run, two for each dump: a name in them says nothing of the rank or step that it belongs to."""

    def __init__(self, folder: Path, dumps: Collection[Path], spelling: str = _SIGNIFICANT) -> None:
        homes = places(dumps)
        tables = {place: Tables(folder / place, spelling) for place in homes.values()}
        self._tables = {dump: tables[place] for dump, place in homes.items()}
        self._last: Tables | None = None

    def add(self, dump: Path, result: DirectionResult) -> None:
        """Write the rows of a record of a dump."""
        tables = self._tables[dump]
        if self._last is not None and self._last is not tables:
            # A run may have more ranks and steps than a process may have files open.
            self._last.pause()
        self._last = tables
        tables.add(result)

    def close(self) -> list[Tables]:
        """Write what is written at the end and return the tables that there are."""
        return [tables for tables in dict.fromkeys(self._tables.values()) if tables.close()]

    def discard(self) -> None:
        """Remove what was written."""
        for tables in self._tables.values():
            tables.discard()


def places(dumps: Collection[Path]) -> dict[Path, Path]:
    """Return a place for each dump's tables: where the dump is below what holds them all, as ``step0/rank1``.

    A dump of another name than msprobe gives has a folder of its own name: ``step0/dump_1.json``.
    """
    # A journal may have any text for a name.
    paths = {dump: Path(os.path.normpath(str(dump).replace("\0", "%00"))) for dump in dumps}
    homes = {dump: path.parent if path.name == DUMP_FILE else path for dump, path in paths.items()}
    shared = os.path.commonpath(homes.values()) if homes else ""
    return {dump: home.relative_to(shared) for dump, home in homes.items()}


class CsvReport:
    """Writes the tables of a run. Where the disk does not take them they are given up, and the run goes on.

    ``decimals`` asks for msprobe's fixed notation.
    """

    hears_finished = True

    def __init__(self, folder: Path, dumps: Collection[Path], root: Path, decimals: int | None = None) -> None:
        self._folder = folder
        self._root = root
        self._tables = TablesByDump(folder, dumps, _SIGNIFICANT if decimals is None else f".{decimals}f")
        self._written: list[Tables] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what is known of one record."""
        plain = getattr(report, "msprobe", None)
        if plain is not None and not self._problem:
            with self._given_up_where_refused():
                self._tables.add(self._root / report.nodeid.partition("::")[0], from_plain(plain))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the result tables and close the files."""
        if not self._problem:
            with self._given_up_where_refused():
                self._written = self._tables.close()
        if self._problem:
            end_as_incomplete(session)

    @contextlib.contextmanager
    def _given_up_where_refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._problem = f"msprobe tables: {cannot_be_written(self._folder, error)}"
            self._tables.discard()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the files are, or why there are none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        elif self._written:
            first = f"{self._written[0].result} and {self._written[0].details.name}"
            count = len(self._written)
            others = f" (of {count} dumps, each in its folder below {self._folder})" if count > 1 else ""
            terminalreporter.line(f"msprobe tables: {first}{others}")


def _create(path: Path, header: tuple[str, ...]) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w", encoding="utf-8-sig", newline="", errors="backslashreplace")
    csv.writer(file).writerow(header)
    return file


def _append(path: Path) -> IO[str]:
    # Only a new file begins with a byte order mark.
    return path.open("a", encoding="utf-8", newline="", errors="backslashreplace")


def _result_row(key: str, directions: dict[str, DirectionResult]) -> list[str]:
    forward, backward = directions.get("forward"), directions.get("backward")
    row = [as_text(key), _status(forward), _status(backward)]
    told = (result for result in (forward, backward) if result and (result.skip or _accuracy(result)))
    message = next((result.verdict.reason for result in told), None)
    return row if message is None else [*row, as_text(message)]


def _status(result: DirectionResult | None) -> str:
    return STATUS[_accuracy(result) or result.verdict.outcome] if result else BLANK


def _accuracy(result: DirectionResult) -> str:
    """Return the outcome of the accuracy alone where perturbed inputs made it a warning; else nothing."""
    perturbed = perturbed_of(result.extras)
    return perturbed.accuracy if perturbed is not None else ""


def _details_rows(result: DirectionResult, spelling: str) -> list[list[Any]]:
    if not result.outputs:
        blanks = [BLANK] * (len(_DETAILS_HEADER) - 3)
        return [[as_text(result.record), *blanks, _status(result), as_text(result.verdict.reason)]]
    # msprobe gives a random result no row: it has no golden value to be measured against.
    judged = (output for output in result.outputs if output.golden_dtype or output.verdict.standard != "random")
    return [_details_row(f"{result.record}.output.{i}", output, spelling) for i, output in enumerate(judged)]


def _details_row(name: str, output: OutputResult, spelling: str) -> list[Any]:
    # A journal has every metric where the run wrote tables as well, else those that decided.
    known = {**output.verdict.metrics, **output.measured}
    metrics = (_number(known.get(metric), spelling) for metric in METRIC_COLUMNS.values())
    shape = str(tuple(output.shape)) if output.target_dtype else BLANK
    dtypes = (as_text(output.golden_dtype or BLANK), as_text(output.target_dtype or BLANK))
    status, reason = STATUS[output.verdict.outcome], as_text(output.verdict.reason)
    return [as_text(name), *dtypes, shape, *metrics, status, reason]


def _number(value: float | None, spelling: str) -> str:
    return BLANK if value is None else format(value, spelling)


# What spreadsheets take for a formula, full-width forms included; a tab or line break before one does not help.
_FORMULA = re.compile(r"[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


def as_text(text: str) -> str:
    """Return a cell that a spreadsheet shows and does not compute."""
    return f"'{text}" if _FORMULA.match(text) else text
