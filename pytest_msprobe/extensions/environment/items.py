"""Facts as items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msprobe_hooks.escaping import id_name, numbered
from pytest_msprobe.extensions.environment.facts import SECTIONS
from pytest_msprobe.extensions.environment.judging import judge_pair
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import JudgedItem

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.environment.fact_pairs import Pair


class FactItem(JudgedItem):
    """One fact of a rank on both sides."""

    announces_warnings = False
    # Nothing here runs on a device.
    is_isolated = False

    def __init__(self, *, pair: Pair, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._pair = pair

    def judge(self) -> DirectionResult:
        """Judge the pair."""
        return DirectionResult(self.name, judge_pair(self._pair))

    def mark_names(self) -> list[str]:
        """Return the section, and what a difference weighs."""
        return [self._pair.section, self._pair.level]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is a section or a level."""
        return name in MARKS


#: What facts are selected by, each with its meaning.
MARKS = {
    **dict.fromkeys(SECTIONS, "the section of a fact of the environment"),
    **dict.fromkeys(("error", "warning"), "what a difference of a fact weighs"),
}


def fact_items(file: pytest.File, pairs: Iterable[tuple[str, Pair]]) -> Iterator[FactItem]:
    """Yield an item for each pair; the text before it is the rank where a file holds several."""
    for name, pair in named_pairs(pairs):
        yield FactItem.from_parent(file, name=name, pair=pair)


def named_pairs(pairs: Iterable[tuple[str, Pair]]) -> Iterator[tuple[str, Pair]]:
    """Yield the name of each item, and its pair."""
    named = list(pairs)
    names = numbered(id_name(f"{prefix}{pair.item_name}") for prefix, pair in named)
    yield from zip(names, (pair for _, pair in named), strict=True)
