"""The structure of calls: the shapes and dtypes of their tensors, and what the files next to a dump say of them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import direction_of
from msprobe_hooks.dump.tensor_files.dtypes import plain_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.call_context import Table
    from msprobe_hooks.dump.reader import Dump

T = TypeVar("T")

_NOTHING = Raw(b"{}")

_STRUCTURE = re.compile(
    rb'"(?:input_args|input_kwargs|input|output|parameters)": ?[\[{]|"dtype": ?"(?:torch\.)?\w+"|"shape": ?\[[^\]]*\]'
)
_DTYPE = re.compile(rb'"dtype": ?"(?:torch\.)?(\w+)"')
_ONE_FLOAT = frozenset({"float16", "bfloat16", "float32"})


def signature(dump: Dump, record: str) -> bytes:
    """Return the shapes and dtypes of a record's tensors, group by group; fp16, bf16 and fp32 count as one dtype."""
    return b"".join(_STRUCTURE.findall(_DTYPE.sub(_dtype, bytes(dump.records[record])))).replace(b" ", b"")


def _dtype(match: re.Match[bytes]) -> bytes:
    """Return a dtype as all frameworks would spell it."""
    return b'"dtype": "%s"' % _shared_dtype(match[1])


@cache
def _shared_dtype(name: bytes) -> bytes:
    plain = plain_dtype(name.decode())
    return b"float" if plain in _ONE_FLOAT else plain.encode()


def named_calls(dump: Dump) -> Dump:
    """Return a dump of task structure with a record, that says nothing, for each call that ``construct.json`` names.

    Any other dump comes back as it is. Raises DumpError where that file is damaged.
    """
    if dump.task != "structure" or dump.records:
        return dump
    names = filter(direction_of, intact(Surroundings(dump.path.parent).parents).entries)
    return replace(dump, records=dict.fromkeys(names, _NOTHING))


def intact(table: Table[T]) -> Table[T]:
    """Return what a file next to a dump says; it may be missing or empty. Raises DumpError where it is damaged."""
    return table.undamaged("copy it again, or delete it to compare without it")
