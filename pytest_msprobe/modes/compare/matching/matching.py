"""Matching of the target's calls to those of the golden run.

A pass pairs what the passes before it left over, by a key that both sides have; each pass is linear in the number of
records. Directions belong together: a backward record goes to the partner of its forward record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import (
    direction_of,
    forward_of,
    is_backward_api,
    is_forward,
    is_forward_api,
    is_module_name,
    shared_name,
    shared_record,
    split_called,
    split_module,
)
from pytest_msprobe.modes.compare.matching.gradient_numbers import gradient_numbers, renumbered
from pytest_msprobe.modes.compare.matching.reordering import (
    intact,
    may_be_weighed,
    pair_unequal,
    place_of,
    same_sequence,
    shape_of_module,
    shortest_renaming,
    signature,
    swap_by_shape,
    swap_reordered,
)
from pytest_msprobe.modes.compare.matching.sequence_alignment import align
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
    """How calls are matched.

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


def match_records(target: Dump, golden: Dump, rules: MatchingRules = MatchingRules()) -> Matching:
    """Match the records of two dumps."""
    matcher = _Matcher(target, golden, rules)
    matcher.run()
    return Matching(matcher.in_order(), matcher.renamed)


_NOBODY: tuple[None, Partner] = (None, "")


class _Matcher:
    def __init__(self, target: Dump, golden: Dump, rules: MatchingRules) -> None:
        self._target, self._golden, self._rules = target, golden, rules
        self._our_parents, self._their_parents = (
            intact(dump.surroundings.parents).entries for dump in (target, golden)
        )
        self._partners: dict[str, tuple[str, Partner]] = {}
        self._taken: set[str] = set()
        # Calls of either run that find their partner in their module or nowhere.
        self._settled: tuple[set[str], set[str]] = set(), set()
        self.renamed: dict[str, str] = {}

    def run(self) -> None:
        for target, golden in self._rules.forced.items():
            if target in self._target.records and golden in self._golden.records:
                self._pair(target, golden, "mapping")
        self._match_modules()
        if self._knows_modules():
            if not (self._rules.across or self._rules.of_graph):
                self._pair_unequal_inside()
            self._join_inside(api_of, "name")
            if self._rules.across:
                self._join_inside(_leaf, "fuzzy")
        if self._rules.fuzzy:
            self._align()
        elif not self._rules.of_graph:
            self._join_numbers()
            self._join_outside()
            if self._rules.across and not self._knows_modules():
                self._join_leaves()
        if self._rules.across and not (self._rules.fuzzy or self._rules.of_graph):
            self._join_stand_ins()
        if not self._rules.across:
            for record, other in swap_by_shape(self._target, self._golden, self._numbered(), self._surrounding).items():
                self._partners[record] = (other, "shapes")
        for record, other in swap_reordered(self._target, self._golden, self._unplaced()).items():
            self._partners[record] = (other, "values")
        self._follow_forward()
        if self._recomputes:
            # A gradient belongs to the recomputed call on one side and to the first one on the other.
            self._join(is_backward_api, self._api_of_target, self._api_of_golden, "fuzzy")
        if not self._rules.across:
            translate = self._rules.translate
            self._join(
                lambda name: True, lambda name: shared_record(translate(name)), shared_record, "name", self._meets()
            )

    def _pair(self, target: str, golden: str, partner: Partner) -> None:
        if target not in self._partners and golden not in self._taken:
            self._partners[target] = (golden, partner)
            self._taken.add(golden)

    def _left(self, wanted: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        paired, taken = (
            {*known, *settled} for known, settled in zip((self._partners, self._taken), self._settled, strict=True)
        )
        target = [name for name in self._target.records if name not in paired and wanted(name)]
        golden = [name for name in self._golden.records if name not in taken and wanted(name)]
        return target, golden

    def _join(
        self,
        wanted: Callable[[str], bool],
        target_key: Callable[[str], Hashable],
        golden_key: Callable[[str], Hashable],
        partner: Partner,
        meets: Callable[[str, str], bool] | None = None,
    ) -> list[tuple[str, str]]:
        """Pair what is left by key, the first of a key with the first that it ``meets``; a key of None has no pair."""
        target, golden = self._left(wanted)
        waiting: dict[Hashable, list[str]] = defaultdict(list)
        for name in reversed(golden):
            waiting[golden_key(name)].append(name)
        waiting.pop(None, None)
        pairs = []
        for name in target:
            others = waiting.get(target_key(name))
            if others and (meets is None or meets(name, others[-1])):
                other = others.pop()
                self._pair(name, other, partner)
                pairs.append((name, other))
        return pairs

    def _may_share_a_number(self, name: str, other: str) -> bool:
        """Return whether two calls may be the same because they have one number.

        They are not where their forward calls have partners, nor where other modules made them and their structures
        or the numbers of calls of their API differ.
        """
        forward, other_forward = forward_of(name), forward_of(other)
        if not is_forward_api(forward):
            return True
        if forward != name and self._has_found(forward, other_forward):
            return False
        if self._api_of_target(forward) in self._uneven_apis and not self._may_share_module(forward, other_forward):
            return False
        parent, their_parent = self._our_parents.get(forward), self._their_parents.get(other_forward)
        partner, _ = self._partners.get(parent or "", _NOBODY)
        return partner in (None, their_parent) or signature(self._target, name) == signature(self._golden, other)

    def _meets(self) -> Callable[[str, str], bool] | None:
        """Return what says which calls of one number may be the same; None where modules are not known, or differ."""
        return self._may_share_a_number if self._knows_modules() and not self._rules.across else None

    def _has_found(self, name: str, other: str) -> bool:
        """Return whether either of two forward calls has a partner, or is known to have none."""
        return name in self._partners or name in self._settled[0] or other in self._taken or other in self._settled[1]

    def _join_numbers(self) -> None:
        counted = self._recomputes or self._rules.across
        names: Iterable[str] = self._target.records
        others: Iterable[str] = self._golden.records
        if self._rules.across:
            # Where modules name a call's partner, it is known by now.
            names, others = self._left(is_forward_api)
            if self._knows_modules():
                partners, taken = {None, *self._partners}, {None, *self._taken}
                names = [name for name in names if self._our_parents.get(name) not in partners]
                others = [name for name in others if self._their_parents.get(name) not in taken]
        target = _numbers(self._target, names, self._rules.translate, counted)
        golden = _numbers(self._golden, others, self._rules.translate_golden, counted)
        self._join(is_forward_api, target.get, golden.get, "name", self._meets())

    def _join_outside(self) -> None:
        """Pair calls outside of modules that no number pairs, where both runs have as many of an API."""
        if self._meets() is None or not self._uneven_apis:
            return
        target, golden = self._left(is_forward_api)
        target = [name for name in target if self._our_parents.get(name) is None]
        golden = [name for name in golden if self._their_parents.get(name) is None]
        for name, other in same_sequence(target, golden, self._api_of_target, self._api_of_golden):
            self._pair(name, other, "name")

    @cached_property
    def _uneven_apis(self) -> frozenset[str]:
        """The APIs of which one run makes more calls: a number of theirs may be that of a call in another module."""
        counts = Counter(map(self._api_of_target, filter(is_forward_api, self._target.records)))
        counts.subtract(Counter(map(self._api_of_golden, filter(is_forward_api, self._golden.records))))
        return frozenset(api for api, difference in counts.items() if difference)

    def _may_share_module(self, name: str, other: str) -> bool:
        """Return whether two calls may be in one module: in partners, or in modules that have none yet."""
        ours, theirs = self._our_parents.get(name), self._their_parents.get(other)
        partner = None if ours is None else self._partners.get(ours, _NOBODY)[0]
        is_placed = (ours is None or partner is not None) and (theirs is None or theirs in self._taken)
        return not is_placed or partner == theirs

    def _join_inside(self, api: Callable[[str], Hashable], partner: Partner) -> None:
        """Pair the n-th call of an API in a module with the n-th in its partner."""
        target_key, golden_key = self._place_inside(api)
        if not self._rules.of_graph:
            self._join(is_forward_api, target_key, golden_key, partner)
            return
        target, golden = self._left(is_forward_api)
        for name, other in same_sequence(target, golden, target_key, golden_key):
            if target_key(name) is not None:
                self._pair(name, other, partner)

    def _place_inside(
        self, api: Callable[[str], Hashable]
    ) -> tuple[Callable[[str], Hashable], Callable[[str], Hashable]]:
        """Return the functions that give the module and API of a call of the target and of the golden run."""
        renamed = {target: golden for target, (golden, _) in self._partners.items() if is_module_name(target)}
        top = "" if self._rules.across else None

        def target_key(name: str) -> Hashable:
            parent = self._our_parents.get(name) or top
            return None if parent is None else (renamed.get(parent, parent), api(self._rules.translate(name)))

        def golden_key(name: str) -> Hashable:
            parent = self._their_parents.get(name) or top
            return None if parent is None else (parent, api(self._rules.translate_golden(name)))

        return target_key, golden_key

    def _pair_unequal_inside(self) -> None:
        """Pair calls of an API of which a module makes more than its partner, or all calls where numbers do not count.

        Of each of these, no other call of the module takes its place later.
        """
        keys = self._place_inside(api_of)
        target, golden = self._left(is_forward_api)
        groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for names, key, at in ((target, keys[0], 0), (golden, keys[1], 1)):
            for name in names:
                groups[key(name)][at].append(name)
        groups.pop(None, None)
        for own, others in groups.values():
            if own and others and (self._rules.fuzzy or len(own) != len(others)):
                self._settled[0].update(own)
                self._settled[1].update(others)
                in_turn = dict(zip(own, others, strict=False))
                for name, other in pair_unequal(self._target, self._golden, own, others):
                    self._pair(name, other, "name" if in_turn.get(name) == other else "values")

    def _join_leaves(self) -> None:
        """Pair what is left by the last word of its API, where both runs have as many."""
        translate, translate_golden = self._rules.translate, self._rules.translate_golden
        target, golden = self._left(is_forward_api)
        keys = (lambda name: _leaf(translate(name))), (lambda name: _leaf(translate_golden(name)))
        for name, other in same_sequence(target, golden, *keys):
            self._pair(name, other, "fuzzy")

    def _join_stand_ins(self) -> None:
        """Pair a call with the one that has its place in the other run, and its shapes."""
        partners = {target: golden for target, (golden, _) in self._partners.items()}
        target, golden = ([*filter(is_forward_api, dump.records)] for dump in (self._target, self._golden))
        for name, other in substituted_calls(target, golden, partners):
            if signature(self._target, name) == signature(self._golden, other):
                self._pair(name, other, "structure")

    def _api_of_target(self, name: str) -> str:
        return api_of(self._rules.translate(name))

    def _api_of_golden(self, name: str) -> str:
        return api_of(self._rules.translate_golden(name))

    @cached_property
    def _recomputes(self) -> bool:
        return any(dump.is_recomputed(name) for dump in (self._target, self._golden) for name in dump.records)

    def _match_modules(self) -> None:
        translate, translate_golden = self._rules.translate, self._rules.translate_golden
        counted, golden_counted = self._in_step(0), self._in_step(1)
        self._join(
            is_module_name,
            lambda name: translate(counted(name)),
            lambda name: translate_golden(golden_counted(name)),
            "name",
        )
        if self._rules.across:
            # One attribute, whatever the class: nn.Dense here is nn.Linear there.
            self._join(
                is_module_name,
                lambda name: place_of(counted(name)),
                lambda name: place_of(golden_counted(name)),
                "structure",
            )
        # The rest are renamed layers, if as many of one class and structure are left over on both sides.
        target, golden = self._left(lambda name: is_module_name(name) and is_forward(name))
        if not target or not golden:
            return
        key, other_key = shape_of_module(self._target), shape_of_module(self._golden)
        for name, other in same_sequence(target, golden, key, other_key):
            self._pair(name, other, "structure")
            self.renamed |= shortest_renaming(split_module(name).path, split_module(other).path)
        self._follow_forward("structure")

    def _in_step(self, side: int) -> Callable[[str], str]:
        """Return what gives gradients of parameters the number that they have in the step of a side."""
        numbers = self._gradients[side]
        return lambda name: renumbered(name, numbers)

    @cached_property
    def _gradients(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return gradient_numbers(self._target), gradient_numbers(self._golden)

    def _knows_modules(self) -> bool:
        return bool(self._our_parents) and bool(self._their_parents)

    def _align(self) -> None:
        target, golden = self._left(is_forward_api)
        target_key = [(self._api_of_target(name), signature(self._target, name)) for name in target]
        golden_key = [(self._api_of_golden(name), signature(self._golden, name)) for name in golden]
        groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for names, keys, at in ((target, target_key, 0), (golden, golden_key, 1)):
            for name, key in zip(names, keys, strict=True):
                groups[key][at].append(name)
        for own, others in groups.values():
            if len(own) != len(others) and may_be_weighed(own, others):
                for name, other in pair_unequal(self._target, self._golden, own, others):
                    self._pair(name, other, "fuzzy")
        for i, j in align(target_key, golden_key):
            self._pair(target[i], golden[j], "fuzzy")

    def _numbered(self) -> dict[str, str]:
        """Return the forward pairs of API calls that rest on their order, in the run or in a module."""
        return {
            target: golden
            for target, (golden, partner) in self._partners.items()
            if partner == "name" and is_forward_api(target)
        }

    def _surrounding(self, name: str) -> Hashable:
        """Return the API of a call of the target, and the module that it was made in on either side."""
        golden, _ = self._partners[name]
        return self._api_of_target(name), self._our_parents.get(name), self._their_parents.get(golden)

    def _unplaced(self) -> dict[str, str]:
        """Return the forward pairs that rest on nothing but the order of the calls."""
        in_module = self._our_parents.get if self._knows_modules() else lambda name: None
        return {
            target: golden
            for target, (golden, partner) in self._partners.items()
            if partner in ("name", "fuzzy") and is_forward_api(target) and in_module(target) is None
        }

    def _follow_forward(self, partner: Partner | None = None) -> None:
        target, golden = self._left(lambda name: not is_forward(name))
        counted, golden_counted = self._in_step(0), self._in_step(1)
        by_forward = {_direction(golden_counted(name)): name for name in golden}
        for name in target:
            twin, direction = _direction(counted(name))
            found = self._partners.get(twin)
            if found is not None:
                other = by_forward.get((found[0], direction))
                if other is not None:
                    self._pair(name, other, partner or found[1])

    def in_order(self) -> list[Match]:
        """Return the target's calls in their order; a golden call without partner follows its predecessor's partner."""
        after: dict[str | None, list[str]] = defaultdict(list)
        previous: str | None = None
        for name in self._golden.records:
            if name in self._taken:
                previous = name
            else:
                after[previous].append(name)
        matches = [Match(None, name) for name in after[None]]
        for name in self._target.records:
            other, partner = self._partners.get(name, _NOBODY)
            matches.append(Match(name, other, partner))
            if other is not None:
                matches += [Match(None, unmatched) for unmatched in after[other]]
        return matches


def substituted_calls(
    target: Sequence[str], golden: Sequence[str], partners: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield a call of each run where neither has a partner and both neighbours of one are those of the other.

    ``target`` and ``golden`` are calls in their order; ``partners`` gives the golden one of each of the target's.
    """
    place_of = {name: place for place, name in enumerate(golden)}
    taken = {*partners.values()}
    for i, name in enumerate(target):
        if name in partners or i == 0:
            continue
        before = place_of.get(partners.get(target[i - 1], ""))
        if before is None or before + 1 >= len(golden) or golden[before + 1] in taken:
            continue
        following = [partners.get(one) for one in target[i + 1 : i + 2]]
        if following == [*golden[before + 2 : before + 3]]:
            yield name, golden[before + 1]


@cache
def api_of(name: str) -> str:
    """Return ``Type.api`` of an API record, whatever its spelling, and its direction."""
    return f"{shared_name(split_called(name)[0])}.{direction_of(name)}"


def _leaf(name: str) -> Hashable:
    """Return the last word of an API and its direction: a function of one framework is a method of the other."""
    return tuple(api_of(name).split(".")[-2:])


def _direction(name: str) -> tuple[str, str]:
    return forward_of(name), direction_of(name)


def _numbers(dump: Dump, names: Iterable[str], translate: Callable[[str], str], counted: bool) -> dict[str, Hashable]:
    """Assign each forward call its number; ``counted``, not as recorded.

    Recomputed calls shift the numbers of the others, so they count apart; several APIs may share a translated name.
    """
    numbers: dict[str, Hashable] = {}
    counts: dict[tuple[str, bool], int] = defaultdict(int)
    for name in filter(is_forward_api, names):
        key = shared_record(translate(name))
        if not counted:
            numbers[name] = key
            continue
        again = dump.is_recomputed(name)
        api = api_of(key)
        numbers[name] = (api, counts[api, again], again)
        counts[api, again] += 1
    return numbers
