"""Phases of an item, reported without pytest's hooks around them, and reports that are kept packed.

What is judged has no fixtures, so that nothing is set up or torn down, yet pytest's hooks around these two phases cost
as much as those around the call. Where only pytest itself listens to them, they are left out. Each phase is
reported as always, and the call is pytest's own, without what looks at marks that an item has not and without the
hooks around the report of a call that passed; an item that takes less time than these hooks, as a compared call that
agrees, makes the report of its call itself. In a worker nothing is shown on a terminal that is not seen. An item goes
through pytest's own phases where another plugin or a ``conftest.py`` has a hook that would not be called, where a mark
would keep pytest from running it, and where it is the last of its file: with it pytest tears down what it set up
before.

Most reports are never asked for anything again. Those of an item that can make them again are kept as the item and two
times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import pytest
from _pytest.runner import call_and_report

from pytest_msprobe.extensions.fast_path.left_out_hooks import DirectHook, HookSubset, has_external_impls
from pytest_msprobe.reports.report_payload import strip_results
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.item_bases import FastItem

# The hooks that are not called for each phase; of the protocol, those that would run an item in our place.
_PHASES = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
)
# Marks by which pytest itself would not run an item, or take its failure for a success.
_EVALUATED_MARKS = frozenset({"skip", "skipif", "xfail"})
# What looks at these marks while an item runs, and what we do around tests and reports.
_NEEDLESS = {
    "pytest_runtest_call": ("_pytest.skipping", "pytest_msprobe.plugin", "pytest_msprobe.session_plugin"),
    "pytest_runtest_logreport": ("pytest_msprobe.session_plugin",),
}
# The hooks in which another plugin may ask a worker's terminal what it has shown.
_SEE_TERMINAL = ("pytest_report_teststatus", "pytest_terminal_summary", "pytest_sessionfinish", "pytest_unconfigure")

Phase = Literal["setup", "call", "teardown"]


class FastProtocol:
    """The plugin that leaves them out, in every process that runs items.

    ``attach_start`` puts what is known of the process into the first report.
    """

    def __init__(self, config: pytest.Config, attach_start: Callable[[pytest.Item, Any], None]) -> None:
        self._config = config
        self._attach_start = attach_start
        self._is_open = False
        self._own: frozenset[str] | None = None
        self._hooks = HookSubset(config.pluginmanager, {})

    def pytest_collection_finish(self) -> None:
        """Find out who listens: every ``conftest.py`` has been loaded."""
        self._is_open = may_be_left_out(self._config)
        manager = self._config.pluginmanager
        direct = partial(DirectHook, manager)
        around: dict[str, Callable[[Any], Any]] = {
            "pytest_runtest_logstart": direct,
            "pytest_runtest_makereport": report_without_hooks,
            "pytest_runtest_logreport": partial(ReportLog, self._config),
            "pytest_runtest_logfinish": direct,
        }
        self._hooks = HookSubset(manager, skipped_plugins(self._config), around)

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run an item that has no phase but its call."""
        if not (self._is_open and isinstance(item, FastItem) and next_item_is_sibling(item, nextitem)):
            return None
        former, item.running_hooks = item.running_hooks, self._hooks.instead_of(item.ihook)
        try:
            self._run(item)
        finally:
            item.running_hooks = former
        return True

    def _run(self, item: FastItem) -> None:
        """Run an item between two empty phases."""
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        start = time.time()
        setup = item.phase_report("setup", start, start)
        self._attach_start(item, setup)
        hook.pytest_runtest_logreport(report=setup)
        report = item.direct_report()
        is_direct, reports = report is not None, list[pytest.TestReport]()
        if report is None:
            report = call_and_report(item, "call")
        else:
            hook.pytest_runtest_logreport(report=report)
        if item.session.shouldfail or item.session.shouldstop:
            call_and_report(item, "teardown", nextitem=None)
        else:
            teardown = item.phase_report("teardown", report.stop, report.stop, (*report.sections,))
            hook.pytest_runtest_logreport(report=teardown)
            reports = [setup, report, teardown] if is_direct else []
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if item.attributes_made_again and reports:
            self._pack(item, reports)

    def _pack(self, item: FastItem, reports: Sequence[pytest.TestReport]) -> None:
        """Keep of an item that reported directly what makes its reports again."""
        if self._own is None:
            self._own = item.attributes_made_again.union(vars(item.phase_report("setup", 0.0, 0.0)))
        reason = reports[1].longrepr
        skipped = reason[2].removeprefix("Skipped: ") if isinstance(reason, tuple) else None
        _pack_reports(self._config.pluginmanager.get_plugin("terminalreporter"), item, reports, self._own, skipped)


def report_without_hooks(make_report: Callable[..., pytest.TestReport]) -> Callable[..., pytest.TestReport]:
    """Return what makes the report of a call: if it passed, without hooks, none of which would change it."""

    def report_of(item: FastItem, call: pytest.CallInfo[None]) -> pytest.TestReport:
        if call.when != "call" or call.excinfo is not None or not isinstance(item, JudgedItem):
            return make_report(item=item, call=call)
        report = item.phase_report("call", call.start, call.stop, _captured_sections(item))
        report.keywords = dict.fromkeys(item.keywords, 1)
        item.attach(report)
        return report

    return report_of


def _captured_sections(node: pytest.Item) -> tuple[tuple[str, str], ...]:
    return tuple((f"Captured {stream} {when}", text) for when, stream, text in node._report_sections)


class ReportLog:
    """The hook that reports a phase; a terminal, which shows nothing of empty phases, is not asked how to show them."""

    def __init__(self, config: pytest.Config, hook: Any) -> None:
        asks_others = has_external_impls(config, ["pytest_report_teststatus"])
        shows = not (asks_others or hasattr(config, "workerinput"))
        self._reporter = config.pluginmanager.get_plugin("terminalreporter") if shows else None
        self._everyone = DirectHook(config.pluginmanager, hook)
        self._others = DirectHook(config.pluginmanager, hook, without=self._reporter)

    def __call__(self, *, report: pytest.TestReport) -> None:
        """Report a phase, and drop what came of the item once it is counted."""
        is_empty = report.when != "call" and report.passed
        if is_empty and self._reporter is not None and self._others.call_directly({"report": report}):
            self._reporter._add_stats("", [report])
        else:
            self._everyone(report=report)
        strip_results(report)


def skipped_plugins(config: pytest.Config) -> Mapping[str, Sequence[object]]:
    """Return the plugins that are not needed for an item without marks, by hook.

    A worker's terminal shows nothing; the controller's shows what workers report.
    """
    skipped: dict[str, list[object]] = {}
    for name, modules in _NEEDLESS.items():
        callees = getattr(config.hook, name).get_hookimpls()
        skipped[name] = [callee.plugin for callee in callees if callee.function.__module__ in modules]
    if hasattr(config, "workerinput") and not has_external_impls(config, _SEE_TERMINAL):
        for name in ("pytest_runtest_logstart", "pytest_runtest_logreport"):
            skipped.setdefault(name, []).append(config.pluginmanager.get_plugin("terminalreporter"))
    return skipped


def may_be_left_out(config: pytest.Config) -> bool:
    """Return whether no plugin observes the phases; to be asked when every ``conftest.py`` has been loaded."""
    return not (config.getoption("setupshow", False) or has_external_impls(config, _PHASES))


def next_item_is_sibling(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Return whether pytest would run an item, and tear nothing down after it: the next one is of the same file."""
    if nextitem is None or nextitem.parent is not item.parent:
        return False
    return not any(mark.name in _EVALUATED_MARKS for node in item.listchain() for mark in node.own_markers)


class MakesReportsAgain(Protocol):
    """An item whose reports follow from what others keep."""

    def report_again(self, when: Phase, start: float, stop: float, skipped: str | None) -> pytest.TestReport:
        """Return the report of a phase as it was."""

    def release(self) -> None:
        """Release what the item holds."""


class PackedReport(pytest.TestReport):
    """A report that is made again when an attribute of it is asked for."""

    __slots__ = ("_item", "_made", "_when")

    def __init__(self, item: MakesReportsAgain, when: Phase, times: tuple[float, float, str | None]) -> None:
        self._item = item
        self._when = when
        self._made = times

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the report, which is made now."""
        if not name.startswith("__") and not vars(self):
            vars(self).update(vars(self._item.report_again(self._when, *self._made)))
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _pack_reports(
    reporter: pytest.TerminalReporter | None,
    item: MakesReportsAgain,
    reports: Sequence[pytest.TestReport],
    own: frozenset[str],
    skipped: str | None,
) -> None:
    """Replace the reports of an item in what the terminal keeps, unless a plugin added something to them.

    ``own`` are the attributes that the item's reports have.
    """
    if any(report.sections or not vars(report).keys() <= own for report in reports):
        return
    # A worker's reports go to the controller.
    is_kept = reporter is not None and not hasattr(reporter.config, "workerinput")
    for stored in reporter.stats.values() if reporter is not None and is_kept else ():
        for at in range(max(len(stored) - 2, 0), len(stored)):
            if any(stored[at] is report for report in reports):
                stored[at] = PackedReport(item, stored[at].when, (stored[at].start, stored[at].stop, skipped))
    item.release()
