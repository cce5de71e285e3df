"""Text of a failing item with its error map, and annotations for GitHub Actions, each about one API.

Their form is that of GitHub's workflow commands,
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from msprobe_hooks.dump.call_context import Surroundings, program_place
from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.messages import escaped_name
from msprobe_standards.verdict import Verdict
from pytest_msprobe.journal import Entry, Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.text import clipped, spelled_out
from pytest_msprobe.results.error_map import LEVELS, NO_ELEMENT, NOT_FINITE, ErrorMap, decades_over, worse
from pytest_msprobe.results.result import DirectionResult, OutputResult

_MOST_LINES, _MOST_ACROSS = 16, 64

KEY = ". right   - within the limit   1-9 above it by up to 10 ... 10^9   # NaN or inf"


def map_lines(error_map: ErrorMap) -> list[str]:
    """Return the map as lines of characters with what they are of: 16 at most, of 64 characters.

    Where all of it looks alike, only the line on the wrong elements is left.
    """
    high, wide = -(-len(error_map.lines) // _MOST_LINES), -(-len(error_map.lines[0]) // _MOST_ACROSS)
    drawn = [_line(error_map.lines[top : top + high], wide) for top in range(0, len(error_map.lines), high)]
    if len(set("".join(drawn)) - {NO_ELEMENT}) == 1:
        return [_wrong_elements(error_map)]
    block = error_map.block[0] * high, error_map.block[1] * wide
    return [
        f"{_folded(error_map)}, a character is {block[0]} x {block[1]} elements",
        *(f"|{line}|" for line in drawn),
        KEY,
        _wrong_elements(error_map),
    ]


def _wrong_elements(error_map: ErrorMap) -> str:
    count = math.prod(error_map.shape)
    if error_map.wrong == count > 1:
        return f"all elements are wrong: beyond {error_map.allowed}"
    place = f", {'at' if error_map.wrong == 1 else 'all in'} {error_map.place}" if error_map.place else ""
    return f"{error_map.wrong} of {count} elements beyond {error_map.allowed}{place}"


def _folded(error_map: ErrorMap) -> str:
    if error_map.split is None:
        return f"{error_map.shape} in lines of {error_map.columns}"
    return f"{error_map.shape} as {error_map.rows} x {error_map.columns}"


def _line(lines: tuple[str, ...], wide: int) -> str:
    return "".join(_character(lines, left, wide) for left in range(0, len(lines[0]), wide))


def _character(lines: tuple[str, ...], left: int, wide: int) -> str:
    level = NO_ELEMENT
    for line in lines:
        for character in line[left : left + wide]:
            level = worse(level, character)
    if level == NO_ELEMENT:
        return " "
    if level == NOT_FINITE:
        return "#"
    if level == LEVELS[0]:
        return "."
    return str(min(decades_over(level), 9)) if decades_over(level) else "-"


#: The words before the command that runs a failed item again.
RERUN = "Run this item alone:"

_OTHERS_SHOWN = 5
_SHARES = frozenset({"cast_error_rate", "error_rate", "tail_share", "ulp_error_proportion"})


def failure_text(result: DirectionResult, rerun: str, verbosity: int = 0, place: str = "") -> str:
    """Return the failure as text; its first line is the reason, which is all that many reports show.

    ``place`` is that of `place_in_words`. At verbosity 0 the deciding output is shown, at 1 every output, with a map of
    where its error sits, at 2 with every number that was measured.
    """
    lines = [result.reason, "", *_story(result, verbosity, place)]
    for note in result.notes:
        lines += ["", note]
    return "\n".join([*lines, "", f"{RERUN} {rerun}"])


def described(result: DirectionResult) -> str:
    """Return what is wrong with every output as text, without maps, notes and how to run it again."""
    plain = result.without_error_maps()
    return "\n".join([plain.reason, "", *_story(plain, verbosity=1, place="")])


def _story(result: DirectionResult, verbosity: int, place: str) -> list[str]:
    what = "is wrong" if result.outputs else f"failed{_how(result)}"
    lines = [" ".join(filter(None, [result.record, what, place]))]
    deciding = result.deciding
    shown = result.outputs if verbosity > 0 else (deciding,) if deciding else ()
    for output in shown:
        lines += ["", *_output_lines(output, numbers=verbosity > 1, is_deciding=output is deciding)]
        lines += [f"  {line}" for line in map_lines(output.error_map)] if verbosity > 0 and output.error_map else []
    if not result.outputs:
        lines += _lines(result.verdict.reason)[1:]
    hidden = sum(output.verdict.outcome == "fail" for output in result.outputs) - (deciding is not None)
    if hidden > 0 and verbosity <= 0:
        lines += ["", f"{hidden} more output{'s are' if hidden > 1 else ' is'} wrong; -v shows each"]
    return lines


def numbers_text(result: DirectionResult) -> list[str]:
    """Return the lines of a result that is no failure: every output with every number that was measured."""
    verdict = result.verdict
    reason = verdict.reason.partition("\n")[0]
    lines = [f"{result.record}: {verdict.outcome}{reason and f': {reason}'}"]
    for output in result.outputs:
        lines += _indented("\n".join(_output_lines(output, numbers=True, is_deciding=False)))
    return lines


def first_of_several(failed: Sequence[DirectionResult], what: str = "records") -> DirectionResult:
    """Return the first failure with the others in a note; ``what`` is the plural of what they are."""
    first, *others = failed
    lines = [f"{other.record}: {other.reason}" for other in others[:_OTHERS_SHOWN]]
    if len(others) > _OTHERS_SHOWN:
        lines.append(f"and {len(others) - _OTHERS_SHOWN} more {what}")
    return replace(first, notes=(*first.notes, "\n".join(["Then:", *lines]))) if lines else first


def place_in_words(card: str, dump: str) -> str:
    """Return where a record was judged and of which dump it is, as ``on npu:3, in rank0``; either may be empty."""
    return ", ".join(filter(None, [card and f"on {card}", dump and f"in {dump}"]))


def _how(result: DirectionResult) -> str:
    kind = result.breakdown
    return f" ({kind.value})" if kind is not None and kind.did_not_end else ""


def _output_lines(output: OutputResult, *, numbers: bool, is_deciding: bool) -> list[str]:
    verdict = output.verdict
    tensor = f" {output.target_dtype} {output.shape}" if output.target_dtype else ""
    lines = [f"{escaped_name(output.path)}{tensor}: {verdict.outcome} by {verdict.standard}"]
    lines += _indented(verdict.reason)[is_deciding:]
    exceeded = [name for name, limit in verdict.limits.items() if verdict.metrics.get(name, 0.0) > limit]
    if len(exceeded) < 2:
        # Of a single one, the reason has said all.
        return (
            lines
            + [f"  {_number(name, verdict)}" for name in verdict.metrics if numbers]
            + _indented(output.difference)
        )
    first = max(exceeded, key=lambda name: _share(verdict.metrics[name], verdict.limits[name]))
    others = [_number(name, verdict) for name in (verdict.metrics if numbers else exceeded) if name != first]
    details = [*others, *_lines(output.difference)]
    return [*lines, f"  decided by {_number(first, verdict)}", "  details:", *(f"    {line}" for line in details)]


def _share(measured: float, limit: float) -> float:
    return measured / limit if limit else math.inf


def _number(name: str, verdict: Verdict) -> str:
    limit = verdict.limits.get(name)
    # No share exceeds 1.
    is_binding = limit is not None and not (name in _SHARES and limit >= 1)
    return f"{name}: {verdict.metrics[name]:.6g}{f' (limit {limit:.6g})' if is_binding else ''}"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in _lines(text)]


def _lines(text: str) -> list[str]:
    # Python splits at characters, too, that only stand in names of others.
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


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
    by_count = sorted(failed.items(), key=lambda api_and_failures: -len(api_and_failures[1]))
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
    journal, entry = max(failures, key=lambda failure: failure[1].result.verdict.margin)
    others = [failure.result.record for _, failure in failures if failure is not entry]
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
