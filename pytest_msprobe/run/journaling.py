"""Journaling of a run, and resumption from a journal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _pytest.junitxml import xml_key

from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal import (
    Entry,
    Header,
    Journal,
    JournalWriter,
    read_header,
    read_journal,
    read_outcomes,
    require_same,
)
from pytest_msprobe.reports.github import failure_text, place_in_words
from pytest_msprobe.reports.junit import entry_properties
from pytest_msprobe.reports.markdown import label
from pytest_msprobe.reports.report_payload import checks_in
from pytest_msprobe.reports.summary import finished_before_key
from pytest_msprobe.results.outcomes import UNFINISHED
from pytest_msprobe.results.result import Start, from_plain, to_plain
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.options import Options, options_key
from pytest_msprobe.run.rerun_command import rerun_command
from pytest_msprobe.storage.files import fingerprint


def report_finished(config: pytest.Config, finished: Collection[str]) -> None:
    """Report the finished items of the journal to ``--junitxml`` and ``--msprobe-csv``, where they were asked for.

    Raises JournalError where the journal is damaged.
    """
    path, junit = config.stash[options_key].journal, config.stash.get(xml_key, None)
    files = [*_tables(config), *([junit] if junit else [])]
    if path is None or not finished or not files:
        return
    journal = read_journal(path)
    labels = label(journal.dumps)
    for entry in journal.entries.values():
        if entry.id in finished:
            for report in _reports(journal, entry, labels[journal.dump_of(entry)]):
                for file in files:
                    file.pytest_runtest_logreport(report)


def _tables(config: pytest.Config) -> list[Any]:
    """Return the reporters that ask for what was finished: see `Mode.reporters`."""
    return [plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "hears_finished", False)]


def _reports(journal: Journal, entry: Entry, dump: str) -> Iterator[pytest.TestReport]:
    """Yield the reports that pytest would have made of an item: one of its call, and the one that ends it."""
    result, verdict = entry.result, entry.result.verdict
    place = entry.id.partition("::")[0]
    common = {
        "nodeid": entry.id,
        "location": (place, None, result.record),
        "keywords": {},
        "user_properties": entry_properties(journal, entry),
    }
    longrepr: str | tuple[str, int, str] | None = None
    if verdict.outcome == "fail":
        longrepr = failure_text(result, journal.rerun_command(entry), place=place_in_words(entry.device, dump))
    elif verdict.outcome == "skip":
        longrepr = (place, 0, f"Skipped: {verdict.reason}")
    ended = {"fail": "failed", "skip": "skipped"}.get(verdict.outcome, "passed")
    called = {"when": "call", "outcome": ended, "longrepr": longrepr, "duration": result.seconds}
    yield pytest.TestReport(**common, **called, msprobe=to_plain(result))  # type: ignore[arg-type]
    yield pytest.TestReport(**common, when="teardown", outcome="passed", longrepr=None)  # type: ignore[arg-type]


_SIZE_INPUT = "msprobe_journal_size"
_FINISHED_OUTPUT = "msprobe_finished"

# How many items of this run the journal had finished, by outcome.
_finished_before_key = pytest.StashKey[Counter[str]]()


def start(config: pytest.Config) -> None:
    """Read the journal to resume, and in the process that hears of every item start writing.

    Raises JournalError where the journal cannot be used.
    """
    options = config.stash[options_key]
    path = options.journal
    if path is None:
        return
    if hasattr(config, "workerinput"):
        # A worker that starts later must skip what the others skip, not what has finished since.
        _leave_out(config, read_outcomes(path, config.workerinput[_SIZE_INPUT])[0])
        return
    header = _header(config, options)
    if options.resume:
        require_same(path, read_header(path), header)
    elif path.exists() and path.stat().st_size:
        raise JournalError(
            "already exists", file=path, remedy="continue it with --msprobe-resume, or choose another name"
        )
    writer = JournalWriter(path, header)
    try:
        # Once the file is ours, so that no line of another run comes between.
        outcomes, starts = read_outcomes(path)
        _require_same_ids(config, path, outcomes)
    except JournalError:
        writer.close()
        raise
    finished = _leave_out(config, outcomes)
    config.pluginmanager.register(JournalReport(writer, starts), "msprobe-journal")
    report_finished(config, finished)


def send_resume_state(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Send a new worker how much of the journal counts as finished before this run."""
    report = config.pluginmanager.get_plugin("msprobe-journal")
    if isinstance(report, JournalReport):
        workerinput[_SIZE_INPUT] = report.size_at_start


def release_in_child(config: pytest.Config) -> None:
    """Release the journal in a process that was forked: its lock would last as long as that process."""
    report = config.pluginmanager.get_plugin("msprobe-journal")
    if isinstance(report, JournalReport):
        report.pytest_unconfigure()


def receive_worker_state(config: pytest.Config, workeroutput: dict[str, dict[str, int]]) -> None:
    """Take what a worker left out; each collects the same items."""
    if _FINISHED_OUTPUT in workeroutput:
        config.stash[_finished_before_key] = Counter(workeroutput[_FINISHED_OUTPUT])


def count_finished_before(session: pytest.Session) -> None:
    """Count what had finished before this run in the summary and the exit status.

    A resumed run ends with 0 or 1 as if it had been one run, also where nothing was left to do.
    """
    config = session.config
    finished = config.stash.get(_finished_before_key, None)
    if not finished or config.option.collectonly:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput[_FINISHED_OUTPUT] = dict(finished)
        return
    config.stash[finished_before_key] = finished
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        failed = finished.keys() - {"pass", "warn", "skip"}
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK


class Resumption:
    """Leaves out what the resumed journal finished."""

    def __init__(self, outcomes: dict[str, str]) -> None:
        self._outcomes = outcomes

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the finished items among those that the run would have."""
        done = [item for item in items if item.nodeid in self._outcomes]
        if done:
            config.stash[_finished_before_key] = Counter(self._outcomes[item.nodeid] for item in done)
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self._outcomes]


class JournalReport:
    """Writes each finished item's line. ``starts`` are those of the runs that this one resumes."""

    def __init__(self, writer: JournalWriter, starts: Sequence[Start] = ()) -> None:
        self._writer = writer
        self._former_modes = starts[-1].math_modes if starts else None
        self._other_modes: dict[str, str] = {}
        self.size_at_start = writer.path.stat().st_size

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the item that has finished, before anything that might fail hears of it."""
        started, plain = getattr(report, "msprobe_start", None), getattr(report, "msprobe", None)
        if started is not None:
            self._begin(msgspec.convert(started, Start))
        device = str(dict(report.user_properties).get("msprobe.device", ""))
        if plain is not None:
            result = from_plain(plain)
            self._write(Entry(report.nodeid, result.outcome, result, device))
        for result in map(from_plain, checks_in(report)):
            self._write(Entry(result.record, result.outcome, result, device, report.msprobe_command))

    def _begin(self, start: Start) -> None:
        self._write(start)
        if self._former_modes is not None:
            self._other_modes.update(start.math_modes.items() - self._former_modes.items())

    def _write(self, line: Entry | Start) -> None:
        try:
            self._writer.write(line)
        except JournalError as error:
            # To go on would be to lose what finishes from now on.
            pytest.exit(f"{error}; free some space, then continue with --msprobe-resume")

    def pytest_unconfigure(self) -> None:
        """Close the journal."""
        self._writer.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the journal is."""
        terminalreporter.line(f"msprobe journal: {self._writer.path}")
        if self._other_modes:
            modes = ", ".join(f"{name} {state}" for name, state in sorted(self._other_modes.items()))
            terminalreporter.line(f"msprobe journal: items finished before ran under other math modes; now: {modes}")


def _leave_out(config: pytest.Config, outcomes: dict[str, str]) -> Collection[str]:
    """Leave out what finished, but what is to run again; return its ids."""
    rerun = config.stash[options_key].rerun
    finished = {item: outcome for item, outcome in outcomes.items() if outcome not in rerun}
    if finished:
        config.pluginmanager.register(Resumption(finished), "msprobe-resumption")
        _leave_abandoned(config, finished)
    return finished


def _require_same_ids(config: pytest.Config, path: Path, outcomes: dict[str, str]) -> None:
    """Raise JournalError where ids start from another folder: every item would be run and written again."""
    dumps = config.stash[dumps_key]
    for finished in outcomes:
        if dump_of_id(config, finished) not in dumps:
            root = read_header(path).root
            raise JournalError(
                f"has items such as {finished!r}, which have other ids in rootdir {config.rootpath}",
                file=path,
                remedy=f"pass the rootdir of the first run: --rootdir={root}",
            )


def _leave_abandoned(config: pytest.Config, finished: dict[str, str]) -> None:
    """Leave out the backward records of calls that did not end, as the run that was cut short would have."""
    for nodeid, outcome in finished.items():
        if outcome in UNFINISHED:
            config.stash[run_folder_key].post("abandoned", dump_of_id(config, nodeid), nodeid.partition("::")[2])


def _header(config: pytest.Config, options: Options) -> Header:
    again = rerun_command(config, "<dump>", "<record>")
    facts = options.mode.journal_facts(config)
    files = {**{str(path): path for path in config.stash[dumps_key]}, **facts.files}
    policy = options.policy if not Path(options.policy).is_file() else fingerprint(Path(options.policy))
    return Header(
        dumps={name: fingerprint(path) for name, path in files.items()},
        settings={"mode": options.mode.name, "policy": policy, **facts.settings},
        shard=str(options.shard or ""),
        root=str(config.rootpath),
        rerun=tuple(shlex.split(again)),
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
