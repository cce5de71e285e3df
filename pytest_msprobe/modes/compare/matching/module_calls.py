"""Pairs of modules, and of the calls and gradients that were made in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import (
    direction_of,
    forward_of,
    is_forward,
    is_forward_api,
    is_module_name,
    is_parameters_grad,
    split_called,
    split_module,
)
from pytest_msprobe.modes.compare.matching.matches import Pairing, api_of
from pytest_msprobe.modes.compare.matching.reordering import (
    pair_unequal,
    place_of,
    same_sequence,
    shape_of_module,
    shortest_renaming,
)
from pytest_msprobe.modes.compare.rows import Partner

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


def gradient_numbers(dump: Dump) -> Mapping[str, int]:
    """Return, for each record of parameters' gradients, how many its module has before it.

    The number in a name counts on from step to step in dumps of msprobe before 26.2, and begins with each step in
    others.
    """
    counts: defaultdict[str, int] = defaultdict(int)
    numbers: dict[str, int] = {}
    for name in filter(is_parameters_grad, dump.records):
        called = split_called(name)[0]
        numbers[name] = counts[called]
        counts[called] += 1
    return numbers


def renumbered(name: str, numbers: Mapping[str, int]) -> str:
    """Return the name of a record with the number that it has in its step; any other name comes back as it is."""
    return f"{split_called(name)[0]}.parameters_grad.{numbers[name]}" if name in numbers else name


class ModuleCalls:
    """Pairs modules by name, place or structure, and calls by their place in a module."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    def pair_modules(self) -> None:
        """Pair modules, and gradients with the partners of their forward calls."""
        translate, translate_golden = self._pairing.rules.translate, self._pairing.rules.translate_golden
        counted, golden_counted = self._in_step(0), self._in_step(1)
        self._pairing.join(
            is_module_name,
            lambda name: translate(counted(name)),
            lambda name: translate_golden(golden_counted(name)),
            "name",
        )
        if self._pairing.rules.across:
            # One attribute, whatever the class: nn.Dense here is nn.Linear there.
            self._pairing.join(
                is_module_name,
                lambda name: place_of(counted(name)),
                lambda name: place_of(golden_counted(name)),
                "structure",
            )
        # The rest are renamed layers, if as many of one class and structure are left over on both sides.
        target, golden = self._pairing.left(lambda name: is_module_name(name) and is_forward(name))
        if not target or not golden:
            return
        key, other_key = shape_of_module(self._pairing.target), shape_of_module(self._pairing.golden)
        for name, other in same_sequence(target, golden, key, other_key):
            self._pairing.pair(name, other, "structure")
            self._pairing.renamed |= shortest_renaming(split_module(name).path, split_module(other).path)
        self.follow_forward("structure")

    def pair_inside(self, api: Callable[[str], Hashable], partner: Partner) -> None:
        """Pair the n-th call of an API in a module with the n-th in its partner."""
        target_key, golden_key = self._place_inside(api)
        if not self._pairing.rules.of_graph:
            self._pairing.join(is_forward_api, target_key, golden_key, partner)
            return
        target, golden = self._pairing.left(is_forward_api)
        for name, other in same_sequence(target, golden, target_key, golden_key):
            if target_key(name) is not None:
                self._pairing.pair(name, other, partner)

    def _place_inside(
        self, api: Callable[[str], Hashable]
    ) -> tuple[Callable[[str], Hashable], Callable[[str], Hashable]]:
        """Return the functions that give the module and API of a call of the target and of the golden run."""
        renamed = {target: golden for target, (golden, _) in self._pairing.partners.items() if is_module_name(target)}
        top = "" if self._pairing.rules.across else None

        def target_key(name: str) -> Hashable:
            parent = self._pairing.our_parents.get(name) or top
            return None if parent is None else (renamed.get(parent, parent), api(self._pairing.rules.translate(name)))

        def golden_key(name: str) -> Hashable:
            parent = self._pairing.their_parents.get(name) or top
            return None if parent is None else (parent, api(self._pairing.rules.translate_golden(name)))

        return target_key, golden_key

    def pair_unequal_inside(self) -> None:
        """Pair calls of an API of which a module makes more than its partner, or all calls where numbers do not count.

        Of each of these, no other call of the module takes its place later.
        """
        keys = self._place_inside(api_of)
        target, golden = self._pairing.left(is_forward_api)
        groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for names, key, at in ((target, keys[0], 0), (golden, keys[1], 1)):
            for name in names:
                groups[key(name)][at].append(name)
        groups.pop(None, None)
        for own, others in groups.values():
            if own and others and (self._pairing.rules.fuzzy or len(own) != len(others)):
                self._pairing.settled[0].update(own)
                self._pairing.settled[1].update(others)
                in_turn = dict(zip(own, others, strict=False))
                for name, other in pair_unequal(self._pairing.target, self._pairing.golden, own, others):
                    self._pairing.pair(name, other, "name" if in_turn.get(name) == other else "values")

    def follow_forward(self, partner: Partner | None = None) -> None:
        """Pair what is not forward with the partner that its forward record has."""
        target, golden = self._pairing.left(lambda name: not is_forward(name))
        counted, golden_counted = self._in_step(0), self._in_step(1)
        by_forward = {_direction(golden_counted(name)): name for name in golden}
        for name in target:
            twin, direction = _direction(counted(name))
            paired = self._pairing.partners.get(twin)
            if paired is not None:
                other = by_forward.get((paired[0], direction))
                if other is not None:
                    self._pairing.pair(name, other, partner or paired[1])

    def _in_step(self, side: int) -> Callable[[str], str]:
        """Return what gives gradients of parameters the number that they have in the step of a side."""
        numbers = self._gradients[side]
        return lambda name: renumbered(name, numbers)

    @cached_property
    def _gradients(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return gradient_numbers(self._pairing.target), gradient_numbers(self._pairing.golden)


def _direction(name: str) -> tuple[str, str]:
    return forward_of(name), direction_of(name)
