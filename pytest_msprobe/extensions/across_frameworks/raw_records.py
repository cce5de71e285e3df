"""Raw records as JSON: calls are composed by the entries of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msprobe_hooks.errors import RecordError

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

Body: TypeAlias = dict[str, Any]
#: What a tensor's entry says of its values; the rest is where they are kept, and who asked for gradients.
_VALUES = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")


def body_of(dump: Dump, record: str) -> Body:
    """Return what a record says; nothing where there is none, or it is malformed."""
    if record not in dump.records:
        return {}
    try:
        body = dump.body(record)
    except RecordError:
        return {}
    return body if isinstance(body, dict) else {}


def tensors_of_group(body: Body, group: str) -> list[Any]:
    """Return the members of a group that may be tensors; what has another form is none."""
    members = body.get(group)
    return [one if is_tensor(one) else None for one in members] if isinstance(members, list) else []


def flat_tensors(body: Body, group: str) -> list[Any]:
    """Return the tensors of a group, those in its lists among them."""
    members = body.get(group)
    return list(_tensors_in(members)) if isinstance(members, list) else []


def _tensors_in(members: list[Any]) -> Iterator[Any]:
    for one in members:
        if isinstance(one, list):
            yield from _tensors_in(one)
        elif is_tensor(one):
            yield one


def settings_of(body: Body) -> Mapping[str, Any]:
    """Return what a primitive was made with, as far as it was recorded."""
    details = body.get("details")
    settings = details.get("settings") if isinstance(details, dict) else None
    return settings if isinstance(settings, dict) else {}


def is_tensor(element: Any) -> bool:
    """Return whether an element is the entry of a tensor."""
    return isinstance(element, dict) and "shape" in element


def are_one(one: Any, other: Any) -> bool:
    """Return whether two entries are of tensors of one shape with equal values, as far as was recorded."""
    if not (is_tensor(one) and is_tensor(other)):
        return False
    # As texts: NaN is the same as NaN.
    return all(str(one.get(key)) == str(other.get(key)) for key in _VALUES)
