"""Matches of two runs: calls in execution order, each with its partner, their pairing and the rules of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import direction_of, is_forward_api, shared_name, split_called
from pytest_msprobe.modes.compare.matching.reordering import intact
from pytest_msprobe.modes.compare.rows import Partner

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

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


#: The partner of a record that has none.
NO_PARTNER: tuple[None, Partner] = (None, "")


class Pairing:
    """The records of two runs and the partners that they have found; each pass pairs what those before it left over.

    By the names of records::

        partners  {"Torch.add.0.forward": ("Torch.add.1.forward", "structure")}     target: golden, and by what
        taken     {"Torch.add.1.forward"}                                           the golden ones of all partners
        settled   ({"Torch.mul.3.forward"}, set())     of target and golden
        renamed   {"h": "layers"}                      parts of the paths of modules
    """

    def __init__(self, target: Dump, golden: Dump, rules: MatchingRules) -> None:
        self.target, self.golden, self.rules = target, golden, rules
        self.our_parents, self.their_parents = (intact(dump.surroundings.parents).entries for dump in (target, golden))
        self.partners: dict[str, tuple[str, Partner]] = {}
        self.taken: set[str] = set()
        # Calls of either run that find their partner in their module or nowhere.
        self.settled: tuple[set[str], set[str]] = set(), set()
        self.renamed: dict[str, str] = {}

    def pair(self, target: str, golden: str, partner: Partner) -> None:
        """Make two records partners, unless either has one."""
        if target not in self.partners and golden not in self.taken:
            self.partners[target] = (golden, partner)
            self.taken.add(golden)

    def left(self, select: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """Return the wanted records of both runs that have no partner, and may still find one."""
        paired, golden_paired = (
            {*names, *settled} for names, settled in zip((self.partners, self.taken), self.settled, strict=True)
        )
        target = [name for name in self.target.records if name not in paired and select(name)]
        golden = [name for name in self.golden.records if name not in golden_paired and select(name)]
        return target, golden

    def join(
        self,
        select: Callable[[str], bool],
        target_key: Callable[[str], Hashable],
        golden_key: Callable[[str], Hashable],
        partner: Partner,
        meets: Callable[[str, str], bool] | None = None,
    ) -> list[tuple[str, str]]:
        """Pair what is left by key, the first of a key with the first that it ``meets``; a key of None has no pair."""
        target, golden = self.left(select)
        waiting: dict[Hashable, list[str]] = defaultdict(list)
        for name in reversed(golden):
            waiting[golden_key(name)].append(name)
        waiting.pop(None, None)
        pairs = []
        for name in target:
            others = waiting.get(target_key(name))
            if others and (meets is None or meets(name, others[-1])):
                other = others.pop()
                self.pair(name, other, partner)
                pairs.append((name, other))
        return pairs

    def has_found(self, name: str, other: str) -> bool:
        """Return whether either of two forward calls has a partner, or is known to have none."""
        return name in self.partners or name in self.settled[0] or other in self.taken or other in self.settled[1]

    def in_order(self) -> list[Match]:
        """Return the target's calls in their order; a golden call without partner follows its predecessor's partner."""
        after: dict[str | None, list[str]] = defaultdict(list)
        previous: str | None = None
        for name in self.golden.records:
            if name in self.taken:
                previous = name
            else:
                after[previous].append(name)
        matches = [Match(None, name) for name in after[None]]
        for name in self.target.records:
            other, partner = self.partners.get(name, NO_PARTNER)
            matches.append(Match(name, other, partner))
            if other is not None:
                matches += [Match(None, unmatched) for unmatched in after[other]]
        return matches

    def knows_modules(self) -> bool:
        """Return whether both runs say in which modules their calls were made."""
        return bool(self.our_parents) and bool(self.their_parents)

    def api_of_target(self, name: str) -> str:
        """Return the API of a record of the target, by the name that both runs share."""
        return api_of(self.rules.translate(name))

    def api_of_golden(self, name: str) -> str:
        """Return the API of a record of the golden run, by the name that both runs share."""
        return api_of(self.rules.translate_golden(name))

    @cached_property
    def recomputes(self) -> bool:
        """Return whether either run computes calls again."""
        return any(dump.is_recomputed(name) for dump in (self.target, self.golden) for name in dump.records)
