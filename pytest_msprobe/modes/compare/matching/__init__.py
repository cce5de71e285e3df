"""Matching of calls between two dumps.

Importing its modules loads msgspec, pytest and yaml.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import is_backward_api, is_forward_api, shared_record
from pytest_msprobe.modes.compare.matching.matches import Matching, MatchingRules, Pairing, api_of
from pytest_msprobe.modes.compare.matching.module_calls import ModuleCalls
from pytest_msprobe.modes.compare.matching.numbered_calls import NumberedCalls
from pytest_msprobe.modes.compare.matching.reordering import (
    may_be_weighed,
    pair_unequal,
    same_sequence,
    signature,
    swap_by_shape,
    swap_reordered,
)
from pytest_msprobe.modes.compare.matching.sequence_alignment import align

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


_BY_NAME = MatchingRules()


def match_records(target: Dump, golden: Dump, rules: MatchingRules = _BY_NAME) -> Matching:
    """Match the records of two dumps."""
    pairing = Pairing(target, golden, rules)
    _Matcher(pairing).run()
    return Matching(pairing.in_order(), pairing.renamed)


class _Matcher:
    """The passes in their order, and those that rest on nothing but the order and structure of calls."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self._modules = ModuleCalls(pairing)
        self._numbers = NumberedCalls(pairing)

    def run(self) -> None:
        for target, golden in self._pairing.rules.forced.items():
            if target in self._pairing.target.records and golden in self._pairing.golden.records:
                self._pairing.pair(target, golden, "mapping")
        self._modules.pair_modules()
        if self._pairing.knows_modules():
            if not (self._pairing.rules.across or self._pairing.rules.of_graph):
                self._modules.pair_unequal_inside()
            self._modules.pair_inside(api_of, "name")
            if self._pairing.rules.across:
                self._modules.pair_inside(_leaf, "fuzzy")
        if self._pairing.rules.fuzzy:
            self._align()
        elif not self._pairing.rules.of_graph:
            self._numbers.pair_by_number()
            self._numbers.pair_outside()
            if self._pairing.rules.across and not self._pairing.knows_modules():
                self._join_leaves()
        if self._pairing.rules.across and not (self._pairing.rules.fuzzy or self._pairing.rules.of_graph):
            self._join_stand_ins()
        if not self._pairing.rules.across:
            for record, other in swap_by_shape(
                self._pairing.target, self._pairing.golden, self._numbered(), self._surrounding
            ).items():
                self._pairing.partners[record] = (other, "shapes")
        for record, other in swap_reordered(self._pairing.target, self._pairing.golden, self._unplaced()).items():
            self._pairing.partners[record] = (other, "values")
        self._modules.follow_forward()
        if self._pairing.recomputes:
            # A gradient belongs to the recomputed call on one side and to the first one on the other.
            self._pairing.join(is_backward_api, self._pairing.api_of_target, self._pairing.api_of_golden, "fuzzy")
        if not self._pairing.rules.across:
            translate = self._pairing.rules.translate
            self._pairing.join(
                lambda name: True,
                lambda name: shared_record(translate(name)),
                shared_record,
                "name",
                self._numbers.may_meet(),
            )

    def _join_leaves(self) -> None:
        """Pair what is left by the last word of its API, where both runs have as many."""
        translate, translate_golden = self._pairing.rules.translate, self._pairing.rules.translate_golden
        target, golden = self._pairing.left(is_forward_api)
        keys = (lambda name: _leaf(translate(name))), (lambda name: _leaf(translate_golden(name)))
        for name, other in same_sequence(target, golden, *keys):
            self._pairing.pair(name, other, "fuzzy")

    def _join_stand_ins(self) -> None:
        """Pair a call with the one that has its place in the other run, and its shapes."""
        partners = {target: golden for target, (golden, _) in self._pairing.partners.items()}
        target, golden = (
            [*filter(is_forward_api, dump.records)] for dump in (self._pairing.target, self._pairing.golden)
        )
        for name, other in substituted_calls(target, golden, partners):
            if signature(self._pairing.target, name) == signature(self._pairing.golden, other):
                self._pairing.pair(name, other, "structure")

    def _align(self) -> None:
        target, golden = self._pairing.left(is_forward_api)
        target_key = [(self._pairing.api_of_target(name), signature(self._pairing.target, name)) for name in target]
        golden_key = [(self._pairing.api_of_golden(name), signature(self._pairing.golden, name)) for name in golden]
        groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for names, keys, at in ((target, target_key, 0), (golden, golden_key, 1)):
            for name, key in zip(names, keys, strict=True):
                groups[key][at].append(name)
        for own, others in groups.values():
            if len(own) != len(others) and may_be_weighed(own, others):
                for name, other in pair_unequal(self._pairing.target, self._pairing.golden, own, others):
                    self._pairing.pair(name, other, "fuzzy")
        for i, j in align(target_key, golden_key):
            self._pairing.pair(target[i], golden[j], "fuzzy")

    def _numbered(self) -> dict[str, str]:
        """Return the forward pairs of API calls that rest on their order, in the run or in a module."""
        return {
            target: golden
            for target, (golden, partner) in self._pairing.partners.items()
            if partner == "name" and is_forward_api(target)
        }

    def _surrounding(self, name: str) -> Hashable:
        """Return the API of a call of the target, and the module that it was made in on either side."""
        golden, _ = self._pairing.partners[name]
        return (
            self._pairing.api_of_target(name),
            self._pairing.our_parents.get(name),
            self._pairing.their_parents.get(golden),
        )

    def _unplaced(self) -> dict[str, str]:
        """Return the forward pairs that rest on nothing but the order of the calls."""
        in_module = self._pairing.our_parents.get if self._pairing.knows_modules() else lambda name: None
        return {
            target: golden
            for target, (golden, partner) in self._pairing.partners.items()
            if partner in ("name", "fuzzy") and is_forward_api(target) and in_module(target) is None
        }


def substituted_calls(
    target: Sequence[str], golden: Sequence[str], partners: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield a call of each run where neither has a partner and both neighbours of one are those of the other.

    ``target`` and ``golden`` are calls in their order; ``partners`` gives the golden one of each of the target's.
    """
    place_of = {name: place for place, name in enumerate(golden)}
    partnered = {*partners.values()}
    for i, name in enumerate(target):
        if name in partners or i == 0:
            continue
        before = place_of.get(partners.get(target[i - 1], ""))
        if before is None or before + 1 >= len(golden) or golden[before + 1] in partnered:
            continue
        following = [partners.get(one) for one in target[i + 1 : i + 2]]
        if following == [*golden[before + 2 : before + 3]]:
            yield name, golden[before + 1]


def _leaf(name: str) -> Hashable:
    """Return the last word of an API and its direction: a function of one framework is a method of the other."""
    return tuple(api_of(name).split(".")[-2:])
