"""Where inf and nan mean nothing: rules by API, and msprobe's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from msprobe_hooks.dump.anomalies.anomaly import Finding, ValuePath, api_of


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
    """Return whether all that a record shows is at ignored places."""
    rule = rules.get(api_of(name).lower())
    if rule is None or finding.growth is not None:
        return False
    return all(rule.covers(place) for place in (*finding.inputs, *finding.outputs))


def _input(*positions: str) -> IgnoreRule:
    return IgnoreRule(inputs=frozenset(positions))


_FIRST_OUTPUT = IgnoreRule(outputs=frozenset({"0"}))

#: msprobe's rules: memory that was not written yet, and what is overwritten.
BUILT_IN: IgnoreRules = {
    "torch.empty": _FIRST_OUTPUT,
    "torch.empty_like": _FIRST_OUTPUT,
    "torch.empty_strided": _FIRST_OUTPUT,
    "distributed.recv": _input("0", "tensor"),
    "distributed.all_gather": _input("0"),
    "distributed.reduce_scatter": _input("0", "output"),
    "distributed._reduce_scatter_base": _input("0"),
    "distributed.all_gather_into_tensor": _input("0"),
    "distributed.reduce_scatter_tensor": _input("0"),
    "tensor.masked_fill_": _input("0"),
}
