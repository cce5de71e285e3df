"""Reporting of a run: the header, the reporters, and what reports carry to the controller."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from msprobe_hooks.torch.torch_files import weights_only_warning
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.containment.run_in_process import internal_failure
from pytest_msprobe.reports.failure_repr import ShowsFailures
from pytest_msprobe.reports.github import failure_text, place_in_words
from pytest_msprobe.reports.junit import replace_properties
from pytest_msprobe.reports.markdown import labelled, labels_key
from pytest_msprobe.reports.report_payload import strip_results, worker_of
from pytest_msprobe.reports.summary import start_shown_key
from pytest_msprobe.reports.text import one_line, printable
from pytest_msprobe.results.result import Start, failed_without_result, to_plain
from pytest_msprobe.run import record_hints
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.mode import reads_torch_files
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.progress_display import register_progress
from pytest_msprobe.run.rerun_command import rerun_command
from pytest_msprobe.run.setups import setups_key
from pytest_msprobe.run.test_checks import attach_checks

# Those of pytest itself.
_FINAL_OUTCOMES = frozenset({"passed", "failed", "skipped"})


def register(config: pytest.Config) -> None:
    """Register the reporters of this run, in the process that hears of every item."""
    config.pluginmanager.register(LastAttempt(), "msprobe-last-attempt")
    if hasattr(config, "workerinput"):
        return
    mode = config.stash[options_key].mode
    if config.stash[dumps_key]:
        line = StartLine(config)
        if mode.needs_device(config):
            config.pluginmanager.register(line, "msprobe-start-line")
        register_progress(config, line.card_of)
        config.pluginmanager.register(ShowsFailures(config), "msprobe-shows-failures")
    for name, reporter in mode.reporters(config).items():
        config.pluginmanager.register(reporter, name)


def header(config: pytest.Config) -> list[str]:
    """Return the header of a run with dumps."""
    if not config.stash[dumps_key]:
        return []
    mode = config.stash[options_key].mode
    warning = weights_only_warning() if reads_torch_files(mode) else ""
    lines = [*mode.header(config), *([f"msprobe: warning: {warning}"] if warning else []), *record_hints.header(config)]
    return [one_line(line) for line in lines]


class StartLine:
    """Says, above the first item, what items run on: known when the device has started, or a worker's first report.

    ``starts`` holds what each worker runs on, by the id of its gateway.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
        self._is_wanted = config.get_verbosity() >= 0
        self.starts: dict[str, Start] = {}

    def write(self, start: Start) -> None:
        """Write the line, for the first process that starts."""
        if self._is_wanted and self._reporter is not None:
            self._reporter.write_line(one_line(f"msprobe: on {start}"))
            self._config.stash[start_shown_key] = True
        self._is_wanted = False

    def card_of(self, gateway: str) -> str:
        """Return the card of a worker by the id of its gateway, empty where it is not known."""
        return self.starts[gateway].place if gateway in self.starts else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line when the first report of a worker names its device."""
        started = getattr(report, "msprobe_start", None)
        if started is not None:
            start = msgspec.convert(started, Start)
            self.write(start)
            worker = worker_of(report)
            if worker:
                self.starts[worker] = start


def attach_start(item: pytest.Item, report: Any) -> None:
    """Attach what this process runs items on to the first report after it is known, as plain data."""
    start = item.config.stash[setups_key].introduce()
    if start is not None:
        report.msprobe_start = msgspec.to_builtins(start)


def attach_result(item: pytest.Item, call: pytest.CallInfo[None], report: Any) -> None:
    """Attach the result of a record, or of a test's checks, to its report, as plain data.

    An item that fails without a failing result, as by what another plugin's hook raised, is a failed record as well.
    """
    if not isinstance(item, JudgedItem):
        # A fixture checks before a test, which may then not be made, and after it.
        if call.when != "setup" or not report.passed:
            attach_checks(item, report)
        return
    if call.when == "teardown":
        return
    if report.failed and call.excinfo is not None and not item.has_failed:
        item.result = internal_failure(item.name, call.excinfo.value)
    if report.failed or call.when == "call":
        item.attach(report)


class LastAttempt:
    """Makes a report show the last attempt at an item that was run again while its report was made.

    pytest-retry does that in a wrapper of this hook. The one here is registered after all others, so it is around them.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Attach what came of the item once more, if that has changed since the report was first made."""
        before = item.result if isinstance(item, JudgedItem) else None
        report = yield
        if isinstance(item, JudgedItem) and item.result is not before:
            item.attach(report)
            replace_properties(report.user_properties, item.user_properties)
        return report


def forget_attempt(report: Any) -> None:
    """Take what came of an item out of the report on an attempt that another plugin follows by a further one.

    pytest-rerunfailures calls such an outcome ``rerun``, pytest-retry whatever its user wants.
    """
    if report.outcome not in _FINAL_OUTCOMES:
        strip_results(report)


def attach_crash(config: pytest.Config, nodeid: str, report: Any) -> None:
    """Make the report on an item that killed its xdist worker show what a record's failure shows."""
    path, _, record = nodeid.partition("::")
    dump = dump_of_id(config, nodeid)
    if dump in config.stash[dumps_key]:
        from pytest_msprobe.containment.scheduler import progress_key

        config.stash[run_folder_key].post("abandoned", dump, record)
        cause = config.stash[progress_key].exit_cause(report.node, nodeid)
        result = failed_without_result(record, cause.breakdown, cause.reason)
        report.msprobe = to_plain(result)
        line = config.pluginmanager.get_plugin("msprobe-start-line")
        start = line.starts.get(report.node.gateway.id) if isinstance(line, StartLine) else None
        card = "" if start is None else start.device
        report.user_properties += [("msprobe.device", card)] if card else []
        report.user_properties += [("msprobe.host", start.host)] if start is not None and start.host else []
        labels = config.stash[labels_key]
        report.location = (path, None, labelled(record, dump, labels))
        place = place_in_words("" if start is None else start.place, labels[dump])
        report.longrepr = printable(failure_text(result, rerun_command(config, dump, record, card), place=place))
