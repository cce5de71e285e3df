"""Matches of two runs: the calls of both in execution order, each with its partner, and the rules that paired them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from msprobe_hooks.dump.names import direction_of, is_forward_api, shared_name, split_called
from pytest_msprobe.modes.compare.rows import Partner

_GOLDEN_MARK = "[golden]"


@dataclass(frozen=True, slots=True)
class Match:
    """A call with its partner; None on the side that has none."""

    target: str | None
    golden: str | None
    partner: Partner = ""

    @property
    def item_name(self) -> str:
        """The name of the call's test item; a call of the golden run alone is marked."""
        return self.target if self.target is not None else f"{self.golden}{_GOLDEN_MARK}"


@dataclass(frozen=True)
class Matching:
    """All calls of both sides in execution order, and the modules that were found under another name."""

    matches: Sequence[Match]
    renamed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def orders(self) -> dict[str, int]:
        """The place in execution order by the name of the test item."""
        return {match.item_name: order for order, match in enumerate(self.matches)}

    @cached_property
    def unmatched(self) -> int:
        """Return how many calls of either run have no partner."""
        return sum(match.target is None or match.golden is None for match in self.matches)

    @cached_property
    def apis_alone(self) -> frozenset[str]:
        """The APIs of forward calls of either run that have no partner."""
        alone = (match.target or match.golden or "" for match in self.matches if None in (match.target, match.golden))
        return frozenset(map(api_of, filter(is_forward_api, alone)))


@dataclass(frozen=True, slots=True)
class MatchingRules:
    """Rules by which calls are matched.

    ``fuzzy`` leaves the calls' numbers out, ``forced`` maps records of the target to the golden ones that a user named,
    ``translate`` and ``translate_golden`` turn a record's name into the one that both runs share. ``across``: the runs
    are of two frameworks, whose layers and functions of one name have other classes and types, and whose calls count
    apart. ``of_graph``: the calls of one run are kernels, of which a compiler makes more or fewer; they find their
    partner in a module that has as many of them.
    """

    fuzzy: bool = False
    forced: dict[str, str] = field(default_factory=dict)
    translate: Callable[[str], str] = str
    translate_golden: Callable[[str], str] = str
    across: bool = False
    of_graph: bool = False


@cache
def api_of(name: str) -> str:
    """Return ``Type.api`` of an API record, whatever its spelling, and its direction."""
    return f"{shared_name(split_called(name)[0])}.{direction_of(name)}"
