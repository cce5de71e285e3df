"""Module calls whose inputs were fed from another dump, as their records say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from msprobe_hooks.dump.names import direction_of, is_module_name
from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import RecordError
from msprobe_hooks.json_decoding import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msprobe_hooks.dump.reader import Dump

_MARK = b'"fed"'


class FedCall(msgspec.Struct, frozen=True):
    """The dump and the record that inputs of a call came from; ``places`` are those of the inputs: ``input.0``.

    ``has_passed`` says whether the record also holds what the program passed, which was replaced.
    """

    dump: str
    record: str
    places: tuple[str, ...]
    has_passed: bool = False


class _Details(msgspec.Struct):
    fed: FedCall | None = None


class _Body(msgspec.Struct):
    details: _Details | None = None
    passed_args: msgspec.Raw = msgspec.Raw(b"")


def fed_calls(dump: Dump) -> Mapping[str, FedCall]:
    """Return what was fed to the calls of modules, by the names of their records.

    Raises RecordError where a record says it in another form.
    """
    calls = {}
    for name, raw in dump.records.items():
        # Only these few are decoded.
        if is_module_name(name) and direction_of(name) == "forward" and _MARK in bytes(raw):
            fed = _fed(name, raw)
            if fed is not None:
                calls[name] = fed
    return calls


def _fed(name: str, raw: msgspec.Raw) -> FedCall | None:
    try:
        body = decode_json(raw, _Body)
    except ValueError as error:
        raise RecordError(f"{record_path(name)}.details.fed", str(error)) from None
    fed = None if body.details is None else body.details.fed
    if fed is None:
        return None
    return msgspec.structs.replace(
        fed, places=tuple(map(_as_input, fed.places)), has_passed=bool(bytes(body.passed_args))
    )


def _as_input(place: str) -> str:
    """Return the place of an input as values are called, whether it was passed by position or by name."""
    return f"input.{place.removeprefix('kwargs.')}" if place.startswith("kwargs.") else place
