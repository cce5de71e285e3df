"""JUnit: the properties of a result, in a run and in a report, and a journal as the file that pytest writes of its run.

The file has the names, outcomes and properties of pytest's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_msprobe.journal import Entry, Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.github import failure_text
from pytest_msprobe.reports.text import printable
from pytest_msprobe.results.result import MATH_MODE, DirectionResult, card_of_host, properties_of

if TYPE_CHECKING:
    from junitparser.xunit2 import TestCase

_OURS = "msprobe."


def verdict_properties(result: DirectionResult) -> list[tuple[str, str]]:
    """Return what JUnit shows of a verdict, or of what kept an item from one."""
    verdict, breakdown, mode = result.verdict, result.breakdown, result.extras.get(MATH_MODE)
    return [
        ("msprobe.verdict", verdict.outcome),
        ("msprobe.standard", verdict.standard),
        *([("msprobe.breakdown", breakdown.value)] if breakdown is not None else []),
        ("msprobe.margin", f"{verdict.margin:.6g}"),
        *([("msprobe.margin_at_most", "true")] if verdict.at_most else []),
        *([("msprobe.math_mode", str(mode))] if mode else []),
        *((f"{_OURS}{name}", text) for name, text in properties_of(result.extras).items()),
    ]


def card_of_properties(properties: Iterable[tuple[str, object]]) -> str:
    """Return the card that properties name, of all hosts' cards; empty where they name none."""
    named = dict(properties)
    return card_of_host(str(named.get("msprobe.device", "")), str(named.get("msprobe.host", "")))


def drop_properties(properties: list[tuple[str, Any]]) -> None:
    """Remove the properties of an earlier attempt at the item: plugins that run a test again keep them."""
    properties[:] = [(name, value) for name, value in properties if not name.startswith(_OURS)]


def replace_properties(properties: list[tuple[str, Any]], by: Iterable[tuple[str, Any]]) -> None:
    """Replace the properties of an earlier attempt at an item by those of this one; other plugins' properties stay."""
    drop_properties(properties)
    properties += [(name, value) for name, value in by if name.startswith(_OURS)]


def entry_properties(journal: Journal, entry: Entry) -> list[tuple[str, str]]:
    """Return the properties that an item of a journal has in JUnit: its verdict, and what it ran on."""
    modes = next((start.modes_in_words for start in reversed(journal.starts) if start.device == entry.device), "")
    place = {"device": entry.device, "math_modes": modes, "seed": journal.header.settings.get("seed", "")}
    named = [(f"msprobe.{name}", value) for name, value in place.items() if value]
    return verdict_properties(entry.result) + named


def write_junit(runs: Sequence[WholeRun], path: Path, *, are_properties_output: bool = False) -> None:
    """Write the file, with a suite for each run. Raises OSError where that fails.

    The schema of Jenkins' xUnit plugin (`junit-10.xsd` of https://github.com/jenkinsci/xunit-plugin) has properties of
    suites alone. With ``are_properties_output`` those of a case are lines of its output, and the file is valid by it.
    """
    from junitparser.xunit2 import JUnitXml, TestSuite

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
    from junitparser import Failure, Skipped
    from junitparser.xunit2 import TestCase

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
