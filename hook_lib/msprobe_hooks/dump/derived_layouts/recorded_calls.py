"""A forward record as far as layouts are of interest: its tensors as their entries, and its plain arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msprobe_hooks.dump.schema import MAX_DEPTH, TENSOR_TYPES

#: An entry of a tensor, as decoded from JSON.
Entry = Mapping[str, Any]

_STATISTICS = ("Max", "Min", "Mean", "Norm")
_FLOATS = ("float", "Float", "bfloat", "BFloat")
# What is less than this fraction of the largest magnitude's square comes from rounding the statistics.
_LEAST_SPREAD = 1e-5


class UnreadableArgumentError(Exception):
    """An argument is none of the plain values that views take."""


def is_entry(value: object) -> bool:
    """Return whether a value is the entry of a tensor."""
    if not isinstance(value, dict) or "shape" not in value:
        return False
    kind = value.get("type")
    return isinstance(kind, str) and kind in TENSOR_TYPES


def entries(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of tensors in part of a record, with their paths."""
    if is_entry(value):
        yield path, value
    elif depth <= MAX_DEPTH and isinstance(value, list):
        for place, item in enumerate(value):
            yield from entries(item, f"{path}.{place}", depth + 1)
    elif depth <= MAX_DEPTH and isinstance(value, dict) and not isinstance(value.get("type"), str):
        for key, item in value.items():
            yield from entries(item, f"{path}.{key}", depth + 1)


def shape_of(entry: Entry) -> tuple[int, ...] | None:
    """Return the shape of a tensor, None for what is no shape."""
    shape = entry["shape"]
    if isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**63 for size in shape):
        return tuple(shape)
    return None


def content_of(entry: Entry) -> tuple[int, int] | None:
    """Return what a tensor's content is known by, and what it is known by in whichever order of its dimensions.

    None for a content that another tensor may have by chance: without statistics, of few values, or of whole numbers.
    """
    shape, dtype = shape_of(entry), entry.get("dtype")
    numbers: list[Any] = [entry.get(name) for name in _STATISTICS]
    checksum = entry.get("md5")
    if shape is None or not isinstance(dtype, str) or not dtype.removeprefix("torch.").startswith(_FLOATS):
        return None
    if not all(map(_is_number, numbers)) or not _is_distinctive(math.prod(shape), *numbers):
        return None
    if not isinstance(checksum, str):
        checksum = None
        wide = [size for size in shape if size != 1]
        if len({*wide}) < len(wide):
            # Dimensions of one size could have been exchanged in a call that is not recorded.
            return None
    family = (dtype, *sorted(size for size in shape if size != 1), *numbers)
    return hash((shape, dtype, checksum, *numbers)), hash(family)


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _is_distinctive(count: int, greatest: float, least: float, mean: float, norm: float) -> bool:
    """Return whether a tensor has more than two different values."""
    largest = max(abs(greatest), abs(least))
    scale = largest * largest
    if not count or not 0 < scale < math.inf or greatest == least:
        return False
    # The mean of (greatest - x) (x - least), which is 0 where no value lies between these two.
    spread = mean * (greatest + least) - norm * norm / count - greatest * least
    return spread > _LEAST_SPREAD * scale


def plain(value: Any) -> Any:
    """Return a plain argument of a view as Python has it. Raises UnreadableArgumentError for any other."""
    if value is None:
        return None
    if isinstance(value, list):
        return [plain(item) for item in value]
    fields: Mapping[str, Any] = value if isinstance(value, dict) else {}
    kind: Any = fields.get("type")
    inner: Any = fields.get("value")
    if kind == "int" and type(inner) is int:
        return inner
    if kind == "bool" and isinstance(inner, bool):
        return inner
    if kind == "str" and isinstance(inner, str):
        return inner
    if kind == "torch.Size" and _are_whole(inner):
        return list(inner)
    if kind == "slice" and isinstance(inner, list) and len(inner) == 3 and _are_whole(inner, also=type(None)):
        return slice(*inner)
    if kind == "ellipsis":
        return ...
    if kind == "torch.memory_format" and isinstance(fields.get("format"), str):
        return fields["format"]
    raise UnreadableArgumentError


def _are_whole(values: object, also: type = int) -> bool:
    return isinstance(values, (list, tuple)) and all(type(item) in (int, also) for item in values)


def wide_arguments(given: Sequence[Any]) -> Sequence[Any]:
    """Return sizes or dimensions that were passed one by one or as one list."""
    return given[0] if len(given) == 1 and isinstance(given[0], list) else given
