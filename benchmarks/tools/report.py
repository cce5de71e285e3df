"""Tables of what tools answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.measure import table
from benchmarks.tools.judged import Judged
from benchmarks.tools.tool import Tool

MARK = "<!-- The tables between these two lines are written by make bench-tools. -->\n"


class Way(NamedTuple):
    """A row of the table: a tool, and the answers that count as an accusation."""

    name: str
    tool: Tool
    words: tuple[str, ...]

    def accuses(self, judged: Judged) -> bool:
        """Return whether it calls a device wrong in any call."""
        return any(judged.accused(self.tool.name, self.words))


def report(judged: Iterable[Judged], tools: Sequence[Tool], missing: Iterable[str]) -> str:
    """Return the tables: of each tool what it finds and accuses, and the same for each kind of device."""
    shown = [each for each in judged if each.calls]
    faults, right = ([each for each in shown if each.is_faulty is is_faulty] for is_faulty in (True, False))
    ways = list(_ways(tools, shown))
    drawn = sum(sum(each.draws) for each in right)
    header = [
        "tool",
        f"faults found of {len(faults)}",
        "of these by a call of which it accuses no right device",
        f"right devices accused of {len(right)}",
        f"calls of theirs accused, of {sum(len(each.calls) for each in right) - drawn} that draw nothing",
        f"of {drawn} that draw random numbers",
        "what it was given",
    ]
    rows = [[way.name, *_counts(way, faults, right), way.tool.given] for way in ways]
    rows += [[name, "not installed", *[""] * 5] for name in missing]
    parts = [table(header, rows)]
    for title, group in (("faults found", faults), ("right devices accused", right)):
        kinds = Counter(each.kind for each in group)
        by_kind = [
            [f"{kind} ({count})", *(sum(each.kind == kind and way.accuses(each) for each in group) for way in ways)]
            for kind, count in kinds.items()
        ]
        parts.append(table([title, *(way.name for way in ways)], by_kind))
    return "\n".join(parts).strip()


def _ways(tools: Sequence[Tool], shown: Sequence[Judged]) -> Iterator[Way]:
    """Yield each tool, and one that warns a second time."""
    for tool in tools:
        yield Way(tool.name, tool, ("wrong",))
        if any("warning" in each.answers[tool.name] for each in shown):
            yield Way(f"{tool.name}, warnings counted", tool, ("wrong", "warning"))


def _counts(way: Way, faults: Sequence[Judged], right: Sequence[Judged]) -> Iterator[object]:
    found = [each for each in faults if way.accuses(each)]
    yield f"{len(found)} ({100 * len(found) / max(1, len(faults)):.1f} %)"
    answers = [
        (call, draws)
        for each in right
        for call, draws, accused in zip(each.calls, each.draws, each.accused(way.tool.name, way.words), strict=True)
        if accused
    ]
    accused = {call for call, _ in answers}
    yield sum(
        any(
            is_wrong and call not in accused
            for call, is_wrong in zip(each.calls, each.accused(way.tool.name, way.words), strict=True)
        )
        for each in found
    )
    yield sum(map(way.accuses, right))
    yield sum(not draws for _, draws in answers)
    yield sum(draws for _, draws in answers)
