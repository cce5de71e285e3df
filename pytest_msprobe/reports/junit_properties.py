"""JUnit properties of a result, in a run and in a report made of its journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_msprobe.journal import Entry, Journal
from pytest_msprobe.results.result import MATH_MODE, DirectionResult, card_of_host, properties_of

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
