"""A dump as data: names, records, files; what its neighbours say of scopes, ranks and steps.

The names are imported on first use: reading names alone loads no reader of files.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.dump.names import ApiName, parse_api_name
    from msprobe_hooks.dump.reader import Dump, open_dump
    from msprobe_hooks.dump.recording_paths import StepRank, find_dumps, step_rank
    from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord, TensorElement
    from msprobe_hooks.dump.values import Value, read_values
    from msprobe_hooks.errors import DumpError, MissingCodecError, RecordError

_HOMES = {
    "ApiName": "dump.names",
    "BackwardRecord": "dump.schema",
    "Dump": "dump.reader",
    "DumpError": "errors",
    "ForwardRecord": "dump.schema",
    "MissingCodecError": "errors",
    "RecordError": "errors",
    "StepRank": "dump.recording_paths",
    "TensorElement": "dump.schema",
    "Value": "dump.values",
    "find_dumps": "dump.recording_paths",
    "open_dump": "dump.reader",
    "parse_api_name": "dump.names",
    "read_values": "dump.values",
    "step_rank": "dump.recording_paths",
}

__all__ = [
    "ApiName",
    "BackwardRecord",
    "Dump",
    "DumpError",
    "ForwardRecord",
    "MissingCodecError",
    "RecordError",
    "StepRank",
    "TensorElement",
    "Value",
    "find_dumps",
    "open_dump",
    "parse_api_name",
    "read_values",
    "step_rank",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"msprobe_hooks.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
