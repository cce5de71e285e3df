"""Hooks of a run that has something of this plugin. PYTEST_DONT_REWRITE, as for the whole package."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.containment.process_state import ProcessState, state_key
from pytest_msprobe.containment.run_folder import open_run_folder, run_folder_key
from pytest_msprobe.fixtures import recording, summary
from pytest_msprobe.installed_extensions import extensions
from pytest_msprobe.modes.check.features import features_of
from pytest_msprobe.modes.check.options import CHECK
from pytest_msprobe.modes.compare.registry import COMPARE
from pytest_msprobe.reports.report_payload import strip_results
from pytest_msprobe.run import (
    collection,
    journaling,
    marks,
    options,
    record_hints,
    report_serialization,
    reporting,
    sharding,
    standard_marker,
    test_checks,
    xdist_hooks,
)
from pytest_msprobe.run.collection import dumps_key
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.mode import ModeRegistry, modes_of
from pytest_msprobe.run.option_data import RESULTS, WHAT
from pytest_msprobe.run.options import devices_key, options_key
from pytest_msprobe.run.setups import SessionSetups, setups_key
from pytest_msprobe.run.shared_options import SharedOptions
from pytest_msprobe.run.test_checks import examples_of
from pytest_msprobe.run.usage_errors import usage_errors


def add_modes(registry: ModeRegistry) -> None:
    """Add the modes of the core, and the options of runs of every mode."""
    registry.add(CHECK, is_default=True)
    registry.add(COMPARE)
    registry.add_options(SharedOptions, RESULTS)
    registry.add_options(options.Options, WHAT)


def register_own(config: pytest.Config) -> None:
    """Register the modes of the core and every extension, once. Raises UsageError where a plugin took a name."""
    modes = modes_of(config)
    if not modes.end_options():
        return
    features_of(config).end_options()
    try:
        add_modes(modes)
        for name, extension in extensions().items():
            config.pluginmanager.register(extension, f"msprobe.{name}")
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Check the options and read the dumps, before any worker starts."""
    register_own(config)
    with usage_errors():
        read = options.read_options(config)
        config.stash[dumps_key] = dumps = collection.open_dumps(config, read)
        record_hints.check_patterns(config, read, dumps.values())
        if dumps or config.option.markexpr:
            marks.register(config)
        if dumps or read.isolate:
            open_run_folder(config)
        config.stash[setups_key] = setups = SessionSetups(config, read, config.stash[devices_key])
        folder, worker = config.stash.get(run_folder_key, None), getattr(config, "workerinput", {}).get("workerid")
        config.stash[state_key] = ProcessState(setups, read.timeout, folder, worker)
        xdist_hooks.start_worker(config)
        read.mode.open(config, dumps)
        config.hook.pytest_msprobe_session(config=config)
        summary.register(config)
        reporting.register(config)
        sharding.start(config)
        # Last, so that it leaves out what has finished of what everything else leaves.
        journaling.start(config)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> collection.KernelsFolder | None:
    """Look for a dump of kernels at its place alone."""
    return collection.collect_directory(path, parent)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> collection.DumpFile | None:
    """Collect the dumps that were named."""
    return collection.collect_file(file_path, parent)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Name records of the dump where it has none of a name that was asked for."""
    try:
        return (yield)
    except pytest.UsageError as error:
        named = record_hints.with_record_names(error, session.config.stash[dumps_key])
        xdist_hooks.report_unusable(session.config, named)
        raise named from None


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the user does not want checked."""
    collection.select_items(config, config.stash[options_key], items)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return what is checked, how and on what."""
    return reporting.header(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Repeat what a header that is not shown says of names that match nothing."""
    for line in record_hints.summary_lines(config):
        terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Start the device before the first item, so that an unusable one is one error and not one per item."""
    with usage_errors():
        return xdist_hooks.start_device(session)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run nothing more in a process whose device an item has broken."""
    done = yield
    xdist_hooks.leave_broken_device(item)
    return done


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to keep what the checks of a test come to."""
    test_checks.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record a test that asks for it."""
    if isinstance(item, JudgedItem):
        return (yield)
    standard_marker.require_known(item)
    with test_checks.running(item), examples_of(item), recording.recording_if_marked(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach what came of a check, and what it ran on, to the report that crosses to the controller."""
    report = yield
    reporting.attach_start(item, report)
    reporting.attach_result(item, call, report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> Iterator[None]:
    """Count an item that is run again once, and drop each result once it is counted."""
    reporting.forget_attempt(report)
    yield
    strip_results(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_report_to_serializable(
    config: pytest.Config,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Encode a report so that any text of it crosses to the controller; what other plugins put into it is in by now."""
    return report_serialization.pack_report(config, (yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_report_from_serializable(data: dict[str, Any]) -> Generator[None, Any, Any]:
    """Unpack what a worker has sent."""
    report_serialization.unpack_report(data)
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count what a resumed journal had finished as part of this run."""
    journaling.count_finished_before(session)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread records by work stealing: one call may take ten thousand times as long as another."""
    return xdist_hooks.make_scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Assign a new xdist worker its slot."""
    xdist_hooks.give_slot(node)
    journaling.send_resume_state(node.config, node.workerinput)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take an xdist worker's slot back, and what it reports at its end."""
    with usage_errors():
        xdist_hooks.take_back(node, error)
    journaling.receive_worker_state(node.config, getattr(node, "workeroutput", {}))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """Report a record that killed its worker like any other that fails."""
    reporting.attach_crash(sched.config, crashitem, report)
