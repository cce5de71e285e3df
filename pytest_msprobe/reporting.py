"""What a run tells: the header, the summary, and what reports carry to the controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_msprobe.baselines import session as baselines
from pytest_msprobe.collection import dumps_key
from pytest_msprobe.devices.math_modes import environment_modes
from pytest_msprobe.item import DumpItem
from pytest_msprobe.options import options_key, record_argument, rerun_command
from pytest_msprobe.reports.failure import failure_text
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results import Start, broken, to_plain
from pytest_msprobe.worker import worker_key

summary_key = pytest.StashKey[Summary]()

# What killed its worker, as dump and record: the replacement does not run a dead forward call for its backward record.
abandoned_key = pytest.StashKey[list[tuple[str, str]]]()


def register(config: pytest.Config) -> None:
    """Register the reporters of this run, in the process that hears of every item."""
    if hasattr(config, "workerinput"):
        return
    dumps = config.stash[dumps_key].values()
    checks = config.stash[options_key].mode == "check"
    summary = Summary(
        module_records=sum(dump.module_count for dump in dumps) if checks else 0,
        kind="API records" if checks else "records",
    )
    config.stash[summary_key] = summary
    if dumps:
        config.pluginmanager.register(StartLine(config), "msprobe-start-line")
    config.pluginmanager.register(summary, "msprobe-summary")
    folder = config.stash[options_key].csv
    if folder is not None:
        from pytest_msprobe.reports.csv import CsvReport

        config.pluginmanager.register(CsvReport(folder), "msprobe-csv")


def header(config: pytest.Config) -> list[str]:
    """Return the header: dumps, policy, device, seed."""
    dumps = config.stash[dumps_key]
    options = config.stash[options_key]
    if not dumps or options.mode != "check":
        return []
    level = f" level {options.level}" if options.level else ""
    lines = [f"msprobe: policy {options.policy}{level}, device {options.device}, seed {options.seed}"]
    lines += [f"msprobe: {name}={value}" for name, value in environment_modes().items()]
    for path, dump in dumps.items():
        modules = f", {dump.module_count} module records" if dump.module_count else ""
        lines.append(
            f"msprobe: {path}: {len(dump.api_names)} API records{modules} ({dump.framework}, {dump.level}, {dump.task})"
        )
    return [*lines, *baselines.header(config)]


class StartLine:
    """Says, above the first item, what items run on: known when the device has started, or a worker's first report."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
        self._is_wanted = config.get_verbosity() >= 0

    def write(self, start: Start) -> None:
        """Write the line, for the first process that starts."""
        if self._is_wanted and self._reporter is not None:
            self._reporter.write_line(f"msprobe: on {start}")
        self._is_wanted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line when the first worker's first report tells of its device."""
        started = getattr(report, "msprobe_start", None)
        if started is not None:
            self.write(msgspec.convert(started, Start))


def attach_start(item: pytest.Item, report: Any) -> None:
    """Put what this process runs items on into the first report after it is known, as plain data."""
    start = item.config.stash[worker_key].introduce()
    if start is not None:
        report.msprobe_start = msgspec.to_builtins(start)


def attach_result(item: pytest.Item, call: pytest.CallInfo[None], report: Any) -> None:
    """Put what came of a record into its report, as plain data."""
    if isinstance(item, DumpItem) and call.when == "call" and item.result is not None:
        report.msprobe = to_plain(item.result)


def attach_crash(config: pytest.Config, nodeid: str, report: Any) -> None:
    """Make the report on an item that killed its xdist worker tell what a record's failure tells."""
    path, _, record = nodeid.partition("::")
    dump = config.rootpath / path
    if dump in config.stash[dumps_key]:
        config.stash.setdefault(abandoned_key, []).append((str(dump), record))
        result = broken(record, "crash", f"the process that ran it died: {report.longrepr}; its last words are above")
        report.msprobe = to_plain(result)
        options = config.stash[options_key]
        rerun = rerun_command(options, record_argument(options, dump, record))
        report.longrepr = failure_text(result, rerun)
