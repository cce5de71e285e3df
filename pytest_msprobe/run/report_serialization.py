"""Reports on their way from a worker to its controller.

execnet writes and reads plain data in Python, value by value, which is as much work as the check of a small record.
Bytes it passes on. So a report is packed: all of it that comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from pytest_msprobe.results.result import as_utf8
from pytest_msprobe.run.hosts import to_controller_paths

# What came of a record is plain data of ours, of which no one asks for a tuple.
_OURS = "msprobe"
_PACKED = "msprobe_packed"
_SCALARS = frozenset({str, int, float, bool, type(None)})


class _Packed(msgspec.Struct, array_like=True):
    """Parts of a report by name: scalars, dicts of them and what is ours; tuples of scalars; lists of such tuples."""

    plain: dict[str, Any]
    tuples: dict[str, tuple[Any, ...]]
    lists: dict[str, list[tuple[Any, ...]]]


_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack_report(config: pytest.Config, data: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a report's data as a worker may send them.

    execnet takes UTF-8 alone, and paths are the controller's. What pytest and other plugins report keeps its types:
    what packing would change is left to execnet.
    """
    if data is None or not hasattr(config, "workerinput"):
        return data
    sent: dict[str, Any] = as_utf8(to_controller_paths(config, data))
    packed, others = _Packed({}, {}, {}), {}
    for name, value in sent.items():
        kind = type(value)
        if kind in _SCALARS or name.startswith(_OURS):
            packed.plain[name] = value
        elif kind is tuple and _are_scalars(value):
            packed.tuples[name] = value
        elif kind is list and all(type(row) is tuple and _are_scalars(row) for row in value):
            packed.lists[name] = value
        elif kind is dict and {*map(type, value)} <= {str} and _are_scalars(value.values()):
            packed.plain[name] = value
        else:
            others[name] = value
    try:
        return others | {_PACKED: msgspec.msgpack.encode(packed)}
    except OverflowError:
        # Its integers have 64 bits at most.
        return sent


def _are_scalars(values: Iterable[object]) -> bool:
    return _SCALARS.issuperset(map(type, values))


def unpack_report(data: dict[str, Any]) -> None:
    """Turn a report's data into what they were before they were packed."""
    packed = data.pop(_PACKED, None)
    if packed is not None:
        values = _decode(packed)
        data.update(**values.plain, **values.tuples, **values.lists)
