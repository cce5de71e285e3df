"""What a run tells: the header, the summary, and what reports carry to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.devices.math_modes import environment_modes
from pytest_msprobe.modes.check.baselines import session as baselines
from pytest_msprobe.reports.failure import failure_text
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import Start, broken, to_plain
from pytest_msprobe.run.collection import dumps_key, pairs_key
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.options import options_key, record_argument, rerun_command
from pytest_msprobe.run.setups import worker_key

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.summary import CompareSummary

summary_key: pytest.StashKey[Summary | CompareSummary] = pytest.StashKey()


def register(config: pytest.Config) -> None:
    """Register the reporters of this run, in the process that hears of every item."""
    if hasattr(config, "workerinput"):
        return
    if config.stash[pairs_key]:
        _register_comparison(config)
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


def _register_comparison(config: pytest.Config) -> None:
    from pytest_msprobe.modes.compare.rows import ComparedCalls, compared_key
    from pytest_msprobe.modes.compare.summary import CompareSummary

    config.stash[compared_key] = calls = ComparedCalls()
    config.pluginmanager.register(calls, "msprobe-compared-calls")
    pairs = list(config.stash[pairs_key].values())
    config.stash[summary_key] = comparison = CompareSummary(pairs, calls)
    config.pluginmanager.register(comparison, "msprobe-compare-summary")
    options = config.stash[options_key]
    if options.compare is not None and (options.csv or options.compare.xlsx or options.compare.html):
        from pytest_msprobe.modes.compare.reporting import CompareReports

        reports = CompareReports(options.compare, options.csv, options.policy, pairs, calls)
        config.pluginmanager.register(reports, "msprobe-compare-reports")


def header(config: pytest.Config) -> list[str]:
    """Return the header: dumps, policy, device, seed, or what is compared with what."""
    dumps = config.stash[dumps_key]
    options = config.stash[options_key]
    if config.stash[pairs_key]:
        pairs = config.stash[pairs_key].values()
        return [
            f"msprobe: comparing by policy {options.policy}",
            *(f"msprobe: {pair.target.path} with {pair.golden.path} ({pair.mode})" for pair in pairs),
        ]
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
    if isinstance(item, DumpItem) and call.when == "call":
        item.attach(report)


def attach_crash(config: pytest.Config, nodeid: str, report: Any) -> None:
    """Make the report on an item that killed its xdist worker tell what a record's failure tells."""
    path, _, record = nodeid.partition("::")
    dump = config.rootpath / path
    if dump in config.stash[dumps_key]:
        from pytest_msprobe.containment.scheduling import progress_key

        config.stash[run_folder_key].post("abandoned", dump, record)
        death = config.stash[progress_key].autopsy(report.node, nodeid)
        result = broken(record, death.outcome, death.reason)
        report.msprobe = to_plain(result)
        options = config.stash[options_key]
        rerun = rerun_command(options, record_argument(options, dump, record))
        report.longrepr = failure_text(result, rerun)
