"""The text of a failing item: what is wrong, how much, where, what was allowed, and how to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msprobe_hooks.escaping import escaped_name
from msprobe_standards.verdict import Verdict
from pytest_msprobe.reports.error_map_text import map_lines
from pytest_msprobe.results.result import DirectionResult, OutputResult

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
    # Of a single one, the reason has said all.
    shown = verdict.metrics if numbers else exceeded if len(exceeded) > 1 else ()
    lines += [f"  {_number(name, verdict)}" for name in shown]
    return lines + _indented(output.difference)


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
