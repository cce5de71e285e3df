"""Pairs of calls by their numbers, as far as modules and counts of their APIs do not speak against it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import forward_of, is_forward_api, shared_record
from pytest_msprobe.modes.compare.matching.matches import NO_PARTNER, Pairing, api_of
from pytest_msprobe.modes.compare.matching.reordering import same_sequence, signature

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


class NumberedCalls:
    """Pairs calls that have one number in both runs."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    def _may_share_a_number(self, name: str, other: str) -> bool:
        """Return whether two calls may be the same because they have one number.

        They are not where their forward calls have partners, nor where other modules made them and their structures
        or the numbers of calls of their API differ.
        """
        forward, other_forward = forward_of(name), forward_of(other)
        if not is_forward_api(forward):
            return True
        if forward != name and self._pairing.has_found(forward, other_forward):
            return False
        if self._pairing.api_of_target(forward) in self._uneven_apis and not self._may_share_module(
            forward, other_forward
        ):
            return False
        parent, their_parent = self._pairing.our_parents.get(forward), self._pairing.their_parents.get(other_forward)
        partner, _ = self._pairing.partners.get(parent or "", NO_PARTNER)
        return partner in (None, their_parent) or signature(self._pairing.target, name) == signature(
            self._pairing.golden, other
        )

    def may_meet(self) -> Callable[[str, str], bool] | None:
        """Return what says which calls of one number may be the same; None where modules are not known, or differ."""
        return self._may_share_a_number if self._pairing.knows_modules() and not self._pairing.rules.across else None

    def pair_by_number(self) -> None:
        """Pair forward calls by API and number."""
        counted = self._pairing.recomputes or self._pairing.rules.across
        names: Iterable[str] = self._pairing.target.records
        others: Iterable[str] = self._pairing.golden.records
        if self._pairing.rules.across:
            # Where modules name a call's partner, it is known by now.
            names, others = self._pairing.left(is_forward_api)
            if self._pairing.knows_modules():
                partners, their_partners = {None, *self._pairing.partners}, {None, *self._pairing.taken}
                names = [name for name in names if self._pairing.our_parents.get(name) not in partners]
                others = [name for name in others if self._pairing.their_parents.get(name) not in their_partners]
        target = _numbers(self._pairing.target, names, self._pairing.rules.translate, counted)
        golden = _numbers(self._pairing.golden, others, self._pairing.rules.translate_golden, counted)
        self._pairing.join(is_forward_api, target.get, golden.get, "name", self.may_meet())

    def pair_outside(self) -> None:
        """Pair calls outside of modules that no number pairs, where both runs have as many of an API."""
        if self.may_meet() is None or not self._uneven_apis:
            return
        target, golden = self._pairing.left(is_forward_api)
        target = [name for name in target if self._pairing.our_parents.get(name) is None]
        golden = [name for name in golden if self._pairing.their_parents.get(name) is None]
        for name, other in same_sequence(target, golden, self._pairing.api_of_target, self._pairing.api_of_golden):
            self._pairing.pair(name, other, "name")

    @cached_property
    def _uneven_apis(self) -> frozenset[str]:
        """The APIs of which one run makes more calls: a number of theirs may be that of a call in another module."""
        counts = Counter(map(self._pairing.api_of_target, filter(is_forward_api, self._pairing.target.records)))
        counts.subtract(Counter(map(self._pairing.api_of_golden, filter(is_forward_api, self._pairing.golden.records))))
        return frozenset(api for api, difference in counts.items() if difference)

    def _may_share_module(self, name: str, other: str) -> bool:
        """Return whether two calls may be in one module: in partners, or in modules that have none yet."""
        ours, theirs = self._pairing.our_parents.get(name), self._pairing.their_parents.get(other)
        partner = None if ours is None else self._pairing.partners.get(ours, NO_PARTNER)[0]
        is_placed = (ours is None or partner is not None) and (theirs is None or theirs in self._pairing.taken)
        return not is_placed or partner == theirs


def _numbers(dump: Dump, names: Iterable[str], translate: Callable[[str], str], counted: bool) -> dict[str, Hashable]:
    """Return each forward call's number; ``counted``, not as recorded.

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
