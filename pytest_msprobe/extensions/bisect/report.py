"""What a bisection found, in words."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe_hooks.dump.call_context import outside_frameworks
from pytest_msprobe.extensions.bisect.bisection import Bisection, Culprit
from pytest_msprobe.extensions.bisect.search import distance
from pytest_msprobe.extensions.bisect.unraised import WIDER, left_text


def found_text(culprit: Culprit, bisection: Bisection) -> str:
    """Return which call was found, how far it moves the number, whether it is alone, its stack, and what was left."""
    return "\n".join(_lines(culprit, bisection))


def nothing_text(bisection: Bisection) -> str:
    """Return what is to be said where all calls together do not move the number beyond the bound."""
    total, to = len(bisection.candidates), bisection.command.to
    moved, bound = distance(bisection.raised, bisection.plain), bisection.bound
    calls, do, move = f"all {total} calls in {to} together", "do", "move"
    if total == 1:
        calls, do, move = f"the one call in {to}", "does", "moves"
    if moved:
        how = f"{move} the number by {moved:.3g}, no more than {bound:.3g}; --bound 0 finds calls that move it at all"
    else:
        how = f"{do} not move the number; {WIDER[to]}"
    lines = [f"nothing found: {calls} {how}"]
    if not moved:
        lines.append("Results keep their dtypes: errors of rounding to them are not found this way.")
    return "\n".join([*lines, *_left(bisection)])


def _lines(culprit: Culprit, bisection: Bisection) -> Iterator[str]:
    found, total, to = culprit.found, len(bisection.candidates), bisection.command.to
    where = f" of {culprit.candidate.process}" if len({each.process for each in bisection.candidates}) > 1 else ""
    yield f"{culprit.candidate.call}{where} moves the number by more than {found.bound:.3g}"
    yield f"  call {found.place + 1} of {total} that {to} changes; found in {bisection.runs} runs"
    yield ""
    numbers = {
        "as it is": found.plain,
        f"all calls in {to}": found.raised,
        "this call alone": found.alone,
        "all but this call": found.without,
    }
    if culprit.everywhere is not None:
        numbers["this call in every process"] = culprit.everywhere
    width = max(map(len, numbers))
    yield from (
        f"  {what:<{width}}  {number:<13.9g} moved by {distance(number, found.plain):.3g}"
        for what, number in numbers.items()
    )
    yield ""
    yield _others(culprit)
    if culprit.stack:
        yield ""
        yield "Called from (innermost last):"
        yield from (
            f"  {line.strip()}" for frame in reversed(outside_frameworks(culprit.stack)) for line in frame.splitlines()
        )
    yield from _left(bisection)


def _left(bisection: Bisection) -> list[str]:
    calls = [candidate.call for candidate in bisection.candidates]
    lines = left_text(bisection.left, calls, bisection.command.custom_op_namespaces)
    return ["", *lines] if lines else []


def _others(culprit: Culprit) -> str:
    found = culprit.found
    if not found.moves_alone:
        if culprit.moves_everywhere:
            return f"It needs the call in every process: {', '.join(culprit.processes)}."
        return (
            "It does not do so alone: it needs earlier calls as well, each of which moves the number by less. "
            "--bound sets the change that counts."
        )
    if found.has_others:
        return "It is the first of several: other calls move the number without it."
    return "No other call is needed, and no other call does so without it."
