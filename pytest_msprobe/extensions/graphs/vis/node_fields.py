"""The values of a call as the viewer shows them: by name, each a table of words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import PlacedValue, Value, read_values
from msprobe_hooks.errors import RecordError

#: The fields of each value, by the value's name.
Items: TypeAlias = dict[str, dict[str, str]]

_NOTHING = "null"


def recorded_items(dump: Dump, record: str) -> tuple[Items, Items]:
    """Return what a record says of its inputs and of its outputs; nothing of one that is malformed or not there."""
    if record not in dump.records:
        return {}, {}
    try:
        return split(read_values(dump, record))
    except RecordError:
        # The comparison and the search for overflow report it as an item of their own.
        return {}, {}


def split(values: Iterable[PlacedValue]) -> tuple[Items, Items]:
    """Return inputs and outputs; parameters and their gradients count as inputs, as for msprobe."""
    inputs: Items = {}
    outputs: Items = {}
    for placed in values:
        (outputs if placed.group == "output" else inputs)[placed.name] = fields_of(placed.value)
    return inputs, outputs


def fields_of(value: Value) -> dict[str, str]:
    """Return the fields of one value, under msprobe's names."""
    if not value.is_tensor:
        return {"type": value.type, "value": value.text} if value.type else {"value": _NOTHING}
    fields = {"type": value.type, "dtype": value.dtype, "shape": str([*value.shape])}
    if value.statistics is not None:
        fields["Max"], fields["Min"], fields["Mean"], fields["Norm"] = map(_word, value.statistics)
    if value.requires_grad is not None:
        fields["requires_grad"] = "True" if value.requires_grad else "False"
    if value.checksum is not None:
        fields["md5"] = value.checksum
    if value.data_name is not None:
        fields["data_name"] = value.data_name
    return fields


def _word(number: float | bool | None) -> str:
    return _NOTHING if number is None else str(number)
