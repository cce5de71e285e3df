"""Reporters of a comparison, which write when all of its calls have finished."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL
from msprobe_hooks.messages import counted
from pytest_msprobe.modes.compare.judging.settings import setting_lines
from pytest_msprobe.modes.compare.judging.shape_changes import micro_batches, shapes_sentence
from pytest_msprobe.modes.compare.reports.table_columns import Column, columns, file_columns
from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
from pytest_msprobe.modes.compare.summary import place_words
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.pages import CHECK, next_steps
from pytest_msprobe.reports.summary import finished_before_key
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.run.rerun_command import display_path, rerun_step
from pytest_msprobe.storage.files import atomic_write

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry, FedLayers, PageGraphs

_SETTINGS_SHOWN = 4


class CompareReports:
    """Writes what was asked for: a table per pair of dumps as CSV or workbook, one page for all of them."""

    def __init__(
        self,
        options: CompareOptions,
        csv: Path | None,
        policy: str,
        pairs: Sequence[DumpPair],
        calls: ComparedCalls,
        parts: ComparisonRegistry,
    ) -> None:
        self._options = options
        self._csv = csv
        self._policy = policy
        self._pairs = pairs
        self._calls = calls
        self._parts = parts
        self._lines: list[str] = []
        self._problems: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports; what cannot be written is said in the summary, and the others are written."""
        if not len(self._calls):
            return
        if self._csv is not None:
            self._tables(self._csv, "csv")
        if self._options.xlsx is not None:
            self._tables(self._options.xlsx, "xlsx")
        folder = self._csv or self._options.xlsx
        if folder is not None:
            self._mappings(folder)
        if self._options.html is not None:
            self._write(self._options.html, partial(self._page, config=session.config))
        if self._problems:
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the reports are."""
        before = terminalreporter.config.stash.get(finished_before_key, Counter())
        note = f" (without the {counted(before.total(), 'call')} finished before this run)" if before else ""
        for line in self._lines:
            terminalreporter.line(one_line(f"{line}{note}"))
        for problem in self._problems:
            terminalreporter.line(one_line(f"ERROR: {problem}"), red=True)

    def _tables(self, folder: Path, kind: str) -> None:
        for pair, calls in self._by_pair():
            name = "batch_compare" if pair.target.kind == "kernel files" else "compare_result"
            path = self._folder(folder, pair) / f"{name}{_suffix(pair)}_{_now()}.{kind}"
            self._write(path, partial(self._table, pair=pair, calls=calls, kind=kind))

    def _table(self, path: Path, *, pair: DumpPair, calls: Iterable[ComparedCall], kind: str) -> None:
        layout = self._columns(pair)
        if kind == "csv":
            from pytest_msprobe.modes.compare.reports.table_columns import write_csv

            write_csv(path, calls, layout)
        else:
            from pytest_msprobe.modes.compare.reports.xlsx import write_xlsx

            write_xlsx(path, calls, layout)

    def _columns(self, pair: DumpPair) -> list[Column]:
        if pair.target.kind == "kernel files":
            return file_columns(self._policy)
        is_transformed = pair.transformations is not None
        is_graph = pair.target.level == KERNEL_LEVEL
        files = (str(pair.target.path), str(pair.golden.path)) if is_graph else None
        return columns(
            pair.mode,
            self._policy,
            with_stack=pair.has_stack,
            files=files,
            metrics=pair.metrics,
            is_transformed=is_transformed,
        )

    def _mappings(self, folder: Path) -> None:
        """Write what a layer mapping led to; it is read, corrected and given to the next run as a data mapping."""
        for pair, calls in self._by_pair():
            export = pair.translation.export
            if export is not None:
                path = self._folder(folder, pair) / f"data_mapping{_suffix(pair)}_{_now()}.yaml"
                self._write(path, partial(_exported, export=export, calls=calls))

    def _by_pair(self) -> Iterator[tuple[DumpPair, Iterable[ComparedCall]]]:
        pairs = {pair.index: pair for pair in self._pairs}
        for index, calls in groupby(self._calls, key=lambda call: call.pair):
            yield pairs[index], calls

    def _folder(self, folder: Path, pair: DumpPair) -> Path:
        folder = folder / pair.stage
        return folder / f"step{pair.step}" if self._has_steps else folder

    def _page(self, path: Path, *, config: pytest.Config) -> None:
        graphs = None if self._parts.drawing is None else self._parts.drawing(self._pairs)
        count, layers = len(self._calls), self._parts.fed_layers
        write_page_of(path, self._pairs, self._calls, count, self._policy, graphs, layers, config)

    def _write(self, path: Path, write: Callable[[Path], None]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part:
                write(part)
        except OSError as error:
            self._problems.append(f"msprobe report: {cannot_be_written(path, error)}")
        else:
            self._lines.append(f"msprobe report: {path}")

    @property
    def _has_steps(self) -> bool:
        return len({pair.step for pair in self._pairs}) > 1


def write_page_of(
    path: Path,
    pairs: Sequence[DumpPair],
    calls: Iterable[ComparedCall],
    count: int,
    policy: str,
    graphs: PageGraphs | None,
    layers: FedLayers | None,
    config: pytest.Config | None = None,
) -> None:
    """Write the page of compared dumps, of ``count`` calls; without ``config`` it has no commands. Raises OSError."""
    from pytest_msprobe.modes.compare.reports.html import write_html

    with_settings: list[ComparedCall] = []
    target, golden = _shared([pair.target.path for pair in pairs]), _shared([pair.golden.path for pair in pairs])
    both = _shared([target, golden])
    write_html(
        path,
        _with_settings(calls, with_settings),
        title=f"{_below(target, both)} against {_below(golden, both)}",
        about=f"{counted(count, 'call')} compared by policy {policy}",
        pairs=[place_words(pair) for pair in pairs],
        notes=chain(_notes(pairs), _setting_notes(pairs, with_settings)),
        limits=pairs[0].policy.rule.scaled_limits,
        graphs=graphs,
        layers=layers,
        metrics=tuple(pairs[0].metrics),
        places=[(pair.step, pair.rank, display_path(config, pair.target.path) if config else "") for pair in pairs],
        commands=[rerun_step(config), CHECK, *next_steps()] if config else (),
    )


def _notes(pairs: Sequence[DumpPair]) -> Iterator[str]:
    """Yield what is to be said of pairs of runs before any of their calls."""
    for pair in pairs:
        where = f"{place_words(pair)}: " if len(pairs) > 1 else ""
        batches = micro_batches([pair.target], [pair.golden]) if pair.unmatched else None
        if batches is not None:
            yield f"{where}{batches}"
        if pair.reshaped is not None:
            yield f"{where}{shapes_sentence(pair.reshaped)}"


def _with_settings(calls: Iterable[ComparedCall], with_settings: list[ComparedCall]) -> Iterator[ComparedCall]:
    """Yield calls, and keep those whose settings differ."""
    for call in calls:
        if call.has_settings:
            with_settings.append(call)
        yield call


def _setting_notes(pairs: Sequence[DumpPair], calls: Sequence[ComparedCall]) -> Iterator[str]:
    for pair in pairs:
        where = f"{place_words(pair)}: " if len(pairs) > 1 else ""
        own = [call for call in calls if call.pair == pair.index]
        yield from (f"{where}{line}" for line in setting_lines(own, _SETTINGS_SHOWN))


def _exported(
    path: Path, *, export: Callable[[Path, Iterable[ComparedCall]], None], calls: Iterable[ComparedCall]
) -> None:
    export(path, calls)


def _now() -> str:
    return f"{datetime.now():%Y%m%d%H%M%S}"


def _suffix(pair: DumpPair) -> str:
    return "" if pair.rank is None else f"_rank{pair.rank}-rank{pair.rank}"


def _shared(paths: Sequence[Path]) -> Path:
    """Return the innermost folder that all paths share; of a single one, itself."""
    return Path(os.path.commonpath([path.absolute() for path in paths]))


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path != folder else path.name
