"""The names of the parameters that a module's positional arguments were for, as its record says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import RecordError
from msprobe_hooks.json_decoding import decode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe_hooks.dump.reader import Dump

_MARK = b'"positional"'


class _Positional(msgspec.Struct):
    names: list[str] = []


class _Details(msgspec.Struct):
    positional: _Positional = msgspec.field(default_factory=_Positional)


class _Body(msgspec.Struct):
    details: _Details = msgspec.field(default_factory=_Details)


def positional_names(dump: Dump, record: str) -> Sequence[str]:
    """Return the names of a module call's positional arguments, none where its record does not say them.

    Raises RecordError where it says them in another form.
    """
    raw = dump.records[record]
    if _MARK not in bytes(raw):
        return ()
    try:
        return decode_json(raw, _Body).details.positional.names
    except ValueError as error:
        raise RecordError(f"{record_path(record)}.details.positional", str(error)) from None
