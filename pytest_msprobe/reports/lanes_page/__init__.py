"""The page of calls on several ranks: a lane for each, calls in order, what joins them.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_msprobe.reports.pages import NextStep, write_page
from pytest_msprobe.reports.text import clipped

_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class LaneCall:
    """One call: its lane and its column in the grid, what came of it and why.

    ``kind`` is what happened in a word, ``why`` says it in one line, ``details`` are pairs of a name and a text. Where
    ``begins`` what is wrong began there. ``item`` is the lane and the record of the item that judged it if another.
    """

    lane: int
    column: int
    name: str
    outcome: str
    kind: str = ""
    why: str = ""
    details: tuple[tuple[str, str], ...] = ()
    begins: bool = False
    item: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Lanes:
    """A page: lanes by name, calls, and which of them belong together.

    ``joins`` are the places of calls that are joined by a line, as those of one collective; ``arrows`` the places of
    two calls of which the first gave to the second what is wrong. ``kind_title`` heads the column of kinds.
    ``dumps`` are those of the lanes, of whose records ``commands`` are.
    """

    title: str
    about: str
    lanes: Sequence[str]
    calls: Sequence[LaneCall]
    notes: Sequence[str] = ()
    joins: Sequence[Sequence[int]] = ()
    arrows: Sequence[tuple[int, int]] = field(default=())
    kind_title: str = "Kind"
    dumps: Sequence[str] = ()
    commands: Sequence[NextStep] = ()


def write_lanes_page(path: Path, lanes: Lanes, *, title: str) -> None:
    """Write the page. Names and messages are data and never markup. Raises OSError where the disk refuses."""
    write_page(path, __package__, _data(lanes), title=title, parts=("grid", "table"))


def _data(lanes: Lanes) -> dict[str, Any]:
    words: dict[str, dict[str, int]] = {name: {} for name in ("outcome", "kind", "why")}
    columns: dict[str, list[Any]] = {name: [] for name in ("lane", "column", "name", *words)}
    for call in lanes.calls:
        columns["lane"].append(call.lane)
        columns["column"].append(call.column)
        columns["name"].append(call.name)
        for name, places in words.items():
            columns[name].append(places.setdefault(clipped(getattr(call, name), _REASON_LENGTH), len(places)))
    return {
        "title": lanes.title,
        "about": lanes.about,
        "notes": lanes.notes,
        "kindTitle": lanes.kind_title,
        "lanes": lanes.lanes,
        "columns": columns,
        "words": {name: list(places) for name, places in words.items()},
        "details": {place: call.details for place, call in enumerate(lanes.calls) if call.details},
        "begins": [place for place, call in enumerate(lanes.calls) if call.begins],
        "items": {place: call.item for place, call in enumerate(lanes.calls) if call.item},
        "dumps": lanes.dumps,
        "commands": lanes.commands,
        "joins": lanes.joins,
        "arrows": lanes.arrows,
    }
