"""What a run tells: the header, the summary, and what reports carry to the controller."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_msprobe.baselines import session as baselines
from pytest_msprobe.collection import dumps_key
from pytest_msprobe.item import DumpItem
from pytest_msprobe.options import options_key, record_argument, rerun_command
from pytest_msprobe.reports.failure import failure_text
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results import broken, to_plain

summary_key = pytest.StashKey[Summary]()

# What killed its worker, as dump and record: the replacement does not run a dead forward call for its backward record.
abandoned_key = pytest.StashKey[list[tuple[str, str]]]()


def register(config: pytest.Config) -> None:
    """Register the reporters of this run, in the process that hears of every item."""
    if hasattr(config, "workerinput"):
        return
    dumps = config.stash[dumps_key].values()
    summary = Summary(module_records=sum(dump.module_count for dump in dumps))
    config.stash[summary_key] = summary
    config.pluginmanager.register(summary, "msprobe-summary")
    folder = config.stash[options_key].csv
    if folder is not None:
        from pytest_msprobe.reports.csv import CsvReport

        config.pluginmanager.register(CsvReport(folder), "msprobe-csv")


def header(config: pytest.Config) -> list[str]:
    """Return the header: dumps, policy, device, seed."""
    dumps = config.stash[dumps_key]
    if not dumps:
        return []
    options = config.stash[options_key]
    level = f" level {options.level}" if options.level else ""
    lines = [f"msprobe: policy {options.policy}{level}, device {options.device}, seed {options.seed}"]
    for path, dump in dumps.items():
        modules = f", {dump.module_count} module records" if dump.module_count else ""
        lines.append(
            f"msprobe: {path}: {len(dump.api_names)} API records{modules} ({dump.framework}, {dump.level}, {dump.task})"
        )
    return [*lines, *baselines.header(config)]


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
