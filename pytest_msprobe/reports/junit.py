"""A journal as JUnit, with the names, outcomes and properties of the file that pytest writes for the same run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from junitparser import Failure, Skipped
from junitparser.xunit2 import JUnitXml, TestCase, TestSuite

from pytest_msprobe.journal import Entry, Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.github import failure_text
from pytest_msprobe.reports.junit_properties import entry_properties
from pytest_msprobe.reports.text import printable


def write_junit(runs: Sequence[WholeRun], path: Path, *, are_properties_output: bool = False) -> None:
    """Write the file, with a suite for each run. Raises OSError where that fails.

    The schema of Jenkins' xUnit plugin (`junit-10.xsd` of https://github.com/jenkinsci/xunit-plugin) has properties of
    suites alone. With ``are_properties_output`` those of a case are lines of its output, and the file is valid by it.
    """
    report = JUnitXml()
    for run in runs:
        suite = TestSuite("msprobe" if len(runs) == 1 else printable(f"msprobe {run.name}"))
        for name, value in _suite_properties(run.journal):
            suite.add_property(f"msprobe.{name}", printable(value))
        suite.add_testcases(
            [_case(run.journal, entry, are_properties_output) for entry in run.journal.entries.values()]
        )
        report.add_testsuite(suite)
    report.update_statistics()
    with path.open("wb") as file:
        report.write(file)


def _suite_properties(journal: Journal) -> list[tuple[str, str]]:
    settings = [(name, value) for name, value in journal.header.settings.items() if name not in ("device", "seed")]
    dumps = [("dump", dump) for dump in journal.header.dumps]
    return [*dumps, *settings, *(("ran_on", f"{start.device}: {start}") for start in journal.starts)]


def _case(journal: Journal, entry: Entry, are_properties_output: bool) -> TestCase:
    result, verdict = entry.result, entry.result.verdict
    folder_and_file = entry.id.partition("::")[0]
    case = TestCase(printable(result.record), printable(folder_and_file.replace("/", ".")), round(result.seconds, 6))
    properties = [(name, printable(value)) for name, value in entry_properties(journal, entry)]
    if are_properties_output:
        case.system_out = "".join(f"{name}: {value}\n" for name, value in properties)
    else:
        for name, value in properties:
            case.add_property(name, value)
    if verdict.outcome == "fail":
        failure = Failure(printable(result.reason), printable(entry.outcome))
        failure.text = printable(failure_text(result, journal.rerun_command(entry)))
        case.append(failure)
    elif verdict.outcome == "skip":
        case.append(Skipped(printable(verdict.reason)))
    return case
