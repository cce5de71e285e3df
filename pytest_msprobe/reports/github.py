"""Journals for GitHub Actions: annotations, of which GitHub shows ten a step, so that each is about one API.

Their form is that of GitHub's workflow commands,
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from msprobe_hooks.dump.call_context import Surroundings, program_place
from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.journal.journal import Entry, Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.failure_text import RERUN
from pytest_msprobe.reports.text import clipped, spelled_out

_SHOWN = 10
_TEXT_LENGTH = 4000


def workflow_commands(runs: Sequence[WholeRun], workspace: Path | None) -> Iterator[str]:
    """Yield a workflow command for each API that failed, the most failures first, and one for what is left.

    ``workspace`` is the folder of the checked out repository: an annotation points at the line of the user's program in
    which a call was made, or at its dump, where that lies in it.
    """
    failed: defaultdict[str, list[tuple[Journal, Entry]]] = defaultdict(list)
    for run in runs:
        for entry in run.journal.entries.values():
            if entry.result.verdict.outcome == "fail":
                failed[_api(entry.result.record)].append((run.journal, entry))
    by_count = sorted(failed.items(), key=lambda each: -len(each[1]))
    # What is left takes the place of one.
    shown = by_count if len(by_count) <= _SHOWN else by_count[: _SHOWN - 1]
    for api, failures in shown:
        yield _of_api(api, failures, workspace)
    rest = by_count[len(shown) :]
    if rest:
        count = sum(len(failures) for _, failures in rest)
        text = f"{', '.join(api for api, _ in rest)}; the step summary lists the worst"
        yield _command({"title": f"{count} more records of {len(rest)} APIs failed"}, text)


def _of_api(api: str, failures: Sequence[tuple[Journal, Entry]], workspace: Path | None) -> str:
    journal, entry = max(failures, key=lambda each: each[1].result.verdict.margin)
    others = [each.result.record for _, each in failures if each is not entry]
    lines = [f"{entry.result.record}: {entry.result.reason}"]
    lines += [f"and {len(others)} more: {clipped(', '.join(others), 500)}"] if others else []
    lines.append(f"{RERUN} {journal.rerun_command(entry)}")
    title = f"{api}: {len(failures)} {'record' if len(failures) == 1 else 'records'} failed"
    return _command(_place(journal.dump_of(entry), entry.result.record, workspace) | {"title": title}, "\n".join(lines))


def _place(dump: Path, record: str, workspace: Path | None) -> dict[str, str]:
    if workspace is None:
        return {}
    file, line = program_place(_stacks(dump.parent).stacks.of_call(record) or ()) or ("", 0)
    if file and Path(file).is_relative_to(workspace):
        return {"file": str(Path(file).relative_to(workspace)), "line": str(line)}
    return {"file": str(dump.relative_to(workspace))} if dump.is_relative_to(workspace) else {}


@cache
def _stacks(folder: Path) -> Surroundings:
    return Surroundings(folder)


def _api(record: str) -> str:
    try:
        return parse_api_name(record).qualified_api
    except ValueError:
        return record


def _command(properties: dict[str, str], text: str) -> str:
    written = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    return f"::error {written}::{_escaped(clipped(text, _TEXT_LENGTH))}"


def _escaped(text: str, more: str = "") -> str:
    r"""Return a text as a workflow command holds it: nothing in a name begins another command."""
    shown = spelled_out(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for char in more:
        shown = shown.replace(char, f"%{ord(char):02X}")
    return shown
