"""Items, page and report of two environments: facts that differ, errors first, with both values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.messages import counted, id_name, numbered
from pytest_msprobe.extensions.environment.fact_pairs import Opened, Pair
from pytest_msprobe.extensions.environment.judging import judge_pair, value_text
from pytest_msprobe.extensions.environment.msprobe_pack import SECTIONS
from pytest_msprobe.extensions.environment.workbook import FILE, Ranked, write_result
from pytest_msprobe.reports.differences_page import Compared, Differences, write_differences_page
from pytest_msprobe.reports.page_file import Results, cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.rerun_command import display_path, rerun_step
from pytest_msprobe.run.shared_options import XLSX

if TYPE_CHECKING:
    import pytest


class FactItem(JudgedItem):
    """One fact of a rank on both sides."""

    announces_warnings = False
    # Nothing here runs on a device.
    is_isolated = False

    def __init__(self, *, pair: Pair, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._pair = pair

    def judge(self) -> DirectionResult:
        """Judge the pair."""
        return DirectionResult(self.name, judge_pair(self._pair))

    def mark_names(self) -> list[str]:
        """Return the section, and what a difference weighs."""
        return [self._pair.section, self._pair.level]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is a section or a level."""
        return name in MARKS


#: What facts are selected by, each with its meaning.
MARKS = {
    **dict.fromkeys(SECTIONS, "the section of a fact of the environment"),
    **dict.fromkeys(("error", "warning"), "what a difference of a fact weighs"),
}


def fact_items(file: pytest.File, pairs: Iterable[tuple[str, Pair]]) -> Iterator[FactItem]:
    """Yield an item for each pair; the text before it is the rank where a file holds several."""
    for name, pair in named_pairs(pairs):
        yield FactItem.from_parent(file, name=name, pair=pair)


def named_pairs(pairs: Iterable[tuple[str, Pair]]) -> Iterator[tuple[str, Pair]]:
    """Yield the name of each item, and its pair."""
    named = list(pairs)
    names = numbered(id_name(f"{prefix}{pair.item_name}") for prefix, pair in named)
    yield from zip(names, (pair for _, pair in named), strict=True)


def write_environment_page(path: Path, results: Results, *, config: pytest.Config, opened: Opened, golden: str) -> None:
    """Write the page of what came of all facts. Raises OSError where the disk refuses."""
    results_by_name = {(dump_of_id(config, item), result.record): result for item, result in results.items()}
    rows: list[Compared] = []
    files = [*config.stash[dumps_key]]
    for file in files:
        # The same fact of each rank is a row of its own.
        rank = f"{file.stem}/" if len(files) > 1 else ""
        for name, pair in named_pairs(opened.named(file)):
            result = results_by_name.get((file, name))
            if result is None:
                continue
            why, _, more = result.verdict.reason.partition("\n")
            target, golden_value = ("" if value is None else value_text(value) for value in (pair.target, pair.golden))
            shown = "" if result.outcome == "pass" else why
            details = (("Called at", more),) if more else ()
            item = display_path(config, file), name
            rows.append(
                Compared(
                    f"{rank}{name}",
                    pair.section,
                    result.outcome,
                    shown,
                    target,
                    golden_value,
                    details=details,
                    item=item,
                )
            )
    differing = sum(row.outcome in ("fail", "warn") for row in rows)
    page = Differences(
        title=f"{differing} of {counted(len(rows), 'fact')} differ",
        about=f"training environment, compared with {golden}",
        noun="fact",
        rows=rows,
        notes=opened.notes,
        commands=[rerun_step(config)],
    )
    write_differences_page(path, page, title="Environment")


_SHOWN = 10


class EnvironmentReport:
    """Collects what differs as reports arrive, and writes msprobe's workbook where it is wanted."""

    #: What a resumed journal had finished may have differed earlier.
    hears_finished = True

    def __init__(self, pairs: Sequence[Ranked], folder: Path | None) -> None:
        self._pairs = pairs
        self._folder = folder
        self._differing: dict[str, dict[str, str]] = {"fail": {}, "warn": {}}
        self._has_judged = False
        self._written: Path | None = None
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what differs."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            self._has_judged = True
            verdict = plain["verdict"]
            if verdict["outcome"] in self._differing:
                self._differing[verdict["outcome"]][plain["record"]] = verdict["reason"].partition("\n")[0]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the workbook."""
        if self._folder is None or session.config.option.collectonly:
            return
        path = self._folder / FILE
        try:
            write_result(path, self._pairs)
            self._written = path
        except OSError as error:
            self._problem = f"{XLSX}: {cannot_be_written(path, error)}"
            end_as_incomplete(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if terminalreporter.config.option.collectonly:
            return
        terminalreporter.section("msprobe environment")
        for line in self.lines():
            terminalreporter.line(one_line(line))
        if self._problem:
            terminalreporter.line(one_line(f"ERROR: {self._problem}"), red=True)

    def lines(self) -> Iterator[str]:
        """Yield the section's lines."""
        if not self._has_judged:
            yield "no fact was judged"
        elif not any(self._differing.values()):
            yield "the two environments are equal"
        for outcome, level in (("fail", "error"), ("warn", "warning")):
            differing = sorted(self._differing[outcome].items(), key=_order)
            yield from (f"{level}: {name}: {reason}" for name, reason in differing[:_SHOWN])
            if len(differing) > _SHOWN:
                yield f"and {len(differing) - _SHOWN} more of level {level}"
        if self._written is not None:
            yield f"all facts are in {self._written}"


def _order(differing: tuple[str, str]) -> int:
    """Sort by section, which is what may explain what comes after it; else as collected."""
    return next((place for place, section in enumerate(SECTIONS) if f"{section}/" in differing[0]), len(SECTIONS))
