"""Where inf and nan mean nothing: rules by API, and msprobe's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from msprobe_hooks.dump.anomalies.anomaly import Finding, ValuePath, api_of
from msprobe_hooks.dump.unread.effects import effects_of_record


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """The places of one API's inputs and outputs to look away from: indices, as text, and names."""

    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()

    def covers(self, place: ValuePath) -> bool:
        """Return whether a value is at one of the places."""
        return place.position in (self.outputs if place.side == "output" else self.inputs)


#: Rules by the API's name in small letters.
IgnoreRules: TypeAlias = Mapping[str, IgnoreRule]


def is_ignored(finding: Finding, name: str, rules: IgnoreRules) -> bool:
    """Return whether all that a record shows is at ignored places: those of its API's rule, or memory that is unread.

    A rule replaces what is known of an API's memory.
    """
    if finding.growth is not None:
        return False
    rule = rules.get(api_of(name).lower())
    if rule is None:
        effects = effects_of_record(name)
        outputs = [place.position for place in finding.outputs]
        return all(effects.is_unread(place.position) for place in finding.inputs) and all(
            map(effects.is_undefined, outputs)
        )
    return all(rule.covers(place) for place in (*finding.inputs, *finding.outputs))


#: What is overwritten in part, beyond what `msprobe_hooks.dump.unread` knows of memory.
BUILT_IN: IgnoreRules = {"tensor.masked_fill_": IgnoreRule(inputs=frozenset({"0"}))}
