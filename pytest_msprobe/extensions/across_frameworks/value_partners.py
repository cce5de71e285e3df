"""The golden value of each value of a call: by a data mapping, a user's API mapping, or what recorders differ in."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import is_forward, is_module_name
from msprobe_hooks.dump.values import PlacedValue, read_values
from pytest_msprobe.extensions.across_frameworks import recorder_differences
from pytest_msprobe.extensions.across_frameworks.value_pairing import named_values, paired_gradients, renamed_parameters

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.extensions.across_frameworks.translation import Translation
    from pytest_msprobe.modes.compare.matching.data_mapping import MappedValues


class ValuePartners:
    """Finds the golden values that have another place in their call than the target's."""

    def __init__(self, target: Dump, golden: Dump, mapped: MappedValues, translation: Translation) -> None:
        self._target, self._golden = target, golden
        self._mapped = mapped
        self._translation = translation

    @cached_property
    def use_different_recorders(self) -> bool:
        """Whether the recorders of the two runs differ."""
        return recorder_differences.use_different_recorders(self._target, self._golden)

    def of_call(self, target: str, golden: str) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
        """Return the golden value of each value that has another place there, and golden values left out.

        Values by full name; None has no golden value. Raises RecordError where a record is malformed or lacks a value
        that the data mapping names.
        """
        pair = self._translation.pair_of(target, golden)
        is_reordered = self.use_different_recorders and not is_forward(target)
        if pair is None and not self._translation.across and target not in self._mapped and not is_reordered:
            return {}, frozenset()
        target_values, golden_values = (
            read_values(self._target, target, as_passed=True),
            read_values(self._golden, golden),
        )
        named, dropped = self._mapped.of_record(target, target_values, golden_values)
        if is_reordered and not named:
            return recorder_differences.paired_gradients(target, target_values, golden_values)
        if not self._translation.across:
            return named, dropped
        found = renamed_parameters(target_values, golden_values) if is_module_name(target) else {}
        more: tuple[dict[str, PlacedValue | None], frozenset[str]] = {}, frozenset()
        if pair is not None:
            more = named_values(
                pair,
                target_values,
                golden_values,
                is_forward=is_forward(target),
                is_reversed=self._translation.reversed,
            )
        elif not is_forward(target) and not named:
            more = paired_gradients(target_values, golden_values)
        return found | more[0] | named, dropped | more[1]
