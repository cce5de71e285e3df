"""Writing a run's journal, and resuming from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.collection import dumps_key
from pytest_msprobe.containment.journal import (
    Entry,
    Header,
    Journal,
    JournalError,
    JournalWriter,
    fingerprint,
    outcome_of,
    read_journal,
    require_same,
)
from pytest_msprobe.options import Options, options_key
from pytest_msprobe.results import from_plain

settled_key = pytest.StashKey[frozenset[str]]()

_SIZE_INPUT = "msprobe_journal_size"


def start(config: pytest.Config) -> None:
    """Read the journal to resume, and in the process that hears of every item start writing.

    Raises pytest.UsageError where the journal cannot be used.
    """
    options = config.stash[options_key]
    if options.journal is None or not config.stash[dumps_key]:
        return
    try:
        if hasattr(config, "workerinput"):
            # A worker that starts later must skip what the others skip, not what has settled since.
            config.stash[settled_key] = _settled(
                options, read_journal(options.journal, config.workerinput[_SIZE_INPUT])
            )
            return
        header = _header(config, options)
        if options.resume:
            journal = read_journal(options.journal)
            require_same(options.journal, journal.header, header)
            config.stash[settled_key] = _settled(options, journal)
        elif options.journal.exists() and options.journal.stat().st_size:
            raise JournalError(
                f"{options.journal}: exists; --msprobe-resume goes on with it, another name starts a new journal"
            )
        writer = JournalWriter(options.journal, header)
    except JournalError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(JournalReport(writer), "msprobe-journal")


def tell_worker(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Tell a new worker how much of the journal counts as settled before this run."""
    report = config.pluginmanager.get_plugin("msprobe-journal")
    if isinstance(report, JournalReport):
        workerinput[_SIZE_INPUT] = report.size_at_start


def leave_out_settled(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the resumed journal settled."""
    settled = config.stash.get(settled_key, frozenset())
    if not settled:
        return
    done = [item for item in items if item.nodeid in settled]
    if done:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in settled]


class JournalReport:
    """Writes each settled item's line."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self.size_at_start = writer.path.stat().st_size

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the item that has settled, before anything that might fail hears of it."""
        plain = getattr(report, "msprobe", None)
        if plain is None:
            return
        result = from_plain(plain)
        self._writer.write(Entry(report.nodeid, outcome_of(result), result))

    def pytest_unconfigure(self) -> None:
        """Close the journal."""
        self._writer.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the journal is."""
        terminalreporter.line(f"msprobe journal: {self._writer.path}")


def _settled(options: Options, journal: Journal) -> frozenset[str]:
    return frozenset(entry.id for entry in journal.entries.values() if entry.outcome not in options.rerun)


def _header(config: pytest.Config, options: Options) -> Header:
    baseline = {} if options.baseline is None else {"baseline": fingerprint(options.baseline)}
    return Header(
        dumps={str(path): fingerprint(path) for path in config.stash[dumps_key]},
        settings={
            "mode": options.mode,
            "policy": options.policy if not Path(options.policy).is_file() else fingerprint(Path(options.policy)),
            "level": options.level or "by API",
            "device": options.device.name,
            "seed": str(options.seed),
            "real_data": options.real_data,
            **baseline,
        },
    )
