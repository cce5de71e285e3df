"""msprobe's two result tables, so that scripts made for them keep working.

Columns, order, names and spellings are those of ``accuracy_checking_result_*.csv`` and
``accuracy_checking_details_*.csv``, which differ between frameworks.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from msprobe_hooks.dump.names import split_direction
from msprobe_hooks.dump.recording_paths import DUMP_FILE, dump_at, home_of
from pytest_msprobe.engine.frameworks import TableForm, frameworks
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.report_payload import checks_in, results_in
from pytest_msprobe.results.result import ACCURACY, DirectionResult, OutputResult, from_plain
from pytest_msprobe.storage.files import atomic_write

# The header's words are msprobe's own; next to each is the metric that fills it.
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


_OF_PYTORCH = TableForm("API name", "DEVICE Dtype", METRIC_COLUMNS, str)


def form_of(framework: str) -> TableForm:
    """Return the form of the tables that msprobe writes of a framework's dumps, by the name that dumps give it."""
    return frameworks().table_form(framework) or _OF_PYTORCH


STATUS = {"pass": "pass", "warn": "Warning", "fail": "error", "skip": "SKIP"}
BLANK = " "

# What tests have checked is in a folder of this name.
_TESTS = "tests"

# As many digits as msprobe has decimals, without losing what is small.
_SIGNIFICANT = ".14g"


class Tables:
    """The two files of a dump: a details row per output as records are added, a row per call at the end.

    ``spelling`` is how numbers are formatted.
    """

    def __init__(self, folder: Path, spelling: str = _SIGNIFICANT, form: TableForm = _OF_PYTORCH) -> None:
        self._spelling = spelling
        self._form = form
        stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
        self.result, self.details = (folder / f"accuracy_checking_{kind}_{stamp}.csv" for kind in ("result", "details"))
        self._calls: dict[str, dict[str, DirectionResult]] = {}
        self._open: IO[str] | None = None

    def add(self, result: DirectionResult) -> None:
        """Write the rows of a record's outputs."""
        key, direction = split_direction(result.record)
        if self._open is None:
            self._open = _append(self.details) if self._calls else _create(self.details, self._form.details_header)
        self._calls.setdefault(key, {})[direction or "forward"] = result
        csv.writer(self._open).writerows(_details_rows(result, self._spelling, self._form))
        self._open.flush()

    def pause(self) -> None:
        """Close the file until the next record comes."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def close(self) -> bool:
        """Write the row of each call and return whether there was any; without one there are no files."""
        if not self._calls:
            return False
        self.pause()
        with atomic_write(self.result) as part, _create(part, self._form.result_header) as file:
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
    """The tables of a run, two for each dump: a name in them says nothing of the rank or step that it belongs to.

    Tests of the user's own share two, in a folder of their own where there are dumps.

    ``dumps`` says of each which framework recorded it.
    """

    def __init__(self, folder: Path, dumps: Mapping[Path, str], spelling: str = _SIGNIFICANT) -> None:
        homes = places(dumps)
        forms = {homes[dump]: form_of(framework) for dump, framework in dumps.items()}
        tables = {place: Tables(folder / place, spelling, form) for place, form in forms.items()}
        self._tables: dict[Path | None, Tables] = {dump: tables[place] for dump, place in homes.items()}
        # Made last: where there is no dump its folder is the run's.
        self._tables[None] = Tables(folder / _TESTS if dumps else folder, spelling)
        self._last: Tables | None = None

    def add(self, dump: Path | None, result: DirectionResult) -> None:
        """Write the rows of a record of a dump, or with None those of a check that a test made."""
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

    A dump of another name than msprobe gives has a folder of its own name, ``step0/dump_1.json``, and so has an
    iteration of a static graph: ``rank_0/Net/0/1``.
    """
    # A journal may have any text for a name.
    paths = {dump: Path(os.path.normpath(str(dump).replace("\0", "%00"))) for dump in dumps}
    homes = {dump: path.parent if path.name == DUMP_FILE else home_of(path) for dump, path in paths.items()}
    shared = os.path.commonpath(homes.values()) if homes else ""
    return {dump: home.relative_to(shared) for dump, home in homes.items()}


class CsvReport:
    """Writes the tables of a run. Where the disk does not take them they are given up, and the run goes on.

    ``dumps`` says of each dump which framework recorded it; ``decimals`` asks for msprobe's fixed notation.
    """

    hears_finished = True

    def __init__(self, folder: Path, dumps: Mapping[Path, str], root: Path, decimals: int | None = None) -> None:
        self._folder = folder
        self._root = root
        self._dumps = dumps.keys()
        self._tables = TablesByDump(folder, dumps, _SIGNIFICANT if decimals is None else f".{decimals}f")
        self._written: list[Tables] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what is known of one record, or of a test's checks."""
        dump = None
        if not checks_in(report):
            dump = dump_at(self._root / report.nodeid.partition("::")[0], self._dumps)
        for plain in results_in(report):
            if not self._problem:
                with self._given_up_where_refused():
                    self._tables.add(dump, from_plain(plain))

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
        """Print where the files are, or why there are none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        elif self._written:
            first = f"{self._written[0].result} and {self._written[0].details.name}"
            count = len(self._written)
            others = f" ({count} of each, every one in its folder below {self._folder})" if count > 1 else ""
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
    reported = (result for result in (forward, backward) if result and (result.skip or _accuracy(result)))
    message = next((result.verdict.reason for result in reported), None)
    return row if message is None else [*row, as_text(message)]


def _status(result: DirectionResult | None) -> str:
    return STATUS[_accuracy(result) or result.verdict.outcome] if result else BLANK


def _accuracy(result: DirectionResult) -> str:
    """Return the outcome of the accuracy alone where a feature made it a warning; else nothing."""
    return str(result.extras.get(ACCURACY, ""))


def _details_rows(result: DirectionResult, spelling: str, form: TableForm) -> list[list[Any]]:
    if not result.outputs:
        blanks = [BLANK] * (len(form.details_header) - 3)
        return [[as_text(result.record), *blanks, _status(result), as_text(result.verdict.reason)]]
    # msprobe gives a random result no row: it has no golden value to be measured against.
    judged = (output for output in result.outputs if output.golden_dtype or output.verdict.standard != "random")
    return [_details_row(f"{result.record}.output.{i}", output, spelling, form) for i, output in enumerate(judged)]


def _details_row(name: str, output: OutputResult, spelling: str, form: TableForm) -> list[Any]:
    # A journal has every metric where the run wrote tables as well, else those that decided.
    measured = {**output.verdict.metrics, **output.measured}
    metrics = (_number(measured.get(metric), spelling) for metric in form.metrics.values())
    shape = str(tuple(output.shape)) if output.target_dtype else BLANK
    dtypes = (as_text(form.spell_dtype(dtype) or BLANK) for dtype in (output.golden_dtype, output.target_dtype))
    status, reason = STATUS[output.verdict.outcome], as_text(output.verdict.reason)
    return [as_text(name), *dtypes, shape, *metrics, status, reason]


def _number(value: float | None, spelling: str) -> str:
    return BLANK if value is None else format(value, spelling)


# What spreadsheets take for a formula, full-width forms included; a tab or line break before one does not help.
_FORMULA = re.compile(r"[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


def as_text(text: str) -> str:
    """Return a cell that a spreadsheet shows and does not compute."""
    return f"'{text}" if _FORMULA.match(text) else text
