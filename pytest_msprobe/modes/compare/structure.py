"""What a dump says about the surroundings of its calls: the modules they were made in, and their call stacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from msprobe_hooks.dump.dtypes import plain_dtype
from msprobe_hooks.dump.names import forward_of
from msprobe_hooks.errors import DumpError

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump

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


@dataclass(frozen=True)
class Surroundings:
    """``construct.json`` and ``stack.json`` beside a dump, read when asked for; either may be missing or empty."""

    folder: Path

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """The record of the module in which each record was made. Raises DumpError where the file is damaged."""
        table: dict[str, str | list[str | None] | None] = _read(
            self.folder / "construct.json", dict[str, str | list[str | None] | None]
        )
        # Some versions wrap the parent and its scope in a list.
        return {name: parent[0] if isinstance(parent, list) else parent for name, parent in table.items()}

    @cached_property
    def _stacks(self) -> dict[str, tuple[str, ...]]:
        table: dict[str, list[object]] = _read(self.folder / "stack.json", dict[str, list[object]])
        stacks: dict[str, tuple[str, ...]] = {}
        for key, entry in table.items():
            if len(entry) == 2 and isinstance(entry[0], list) and isinstance(entry[1], list):
                frames = tuple(map(str, entry[1]))
                stacks |= dict.fromkeys(map(str, entry[0]), frames)
            else:
                stacks[key] = tuple(map(str, entry))
        return stacks

    def stack(self, record: str) -> tuple[str, ...]:
        """Return the call stack of a record, innermost frame first; a backward record has that of its forward twin."""
        found = self._stacks.get(record)
        return found if found is not None else self._stacks.get(forward_of(record), ())

    def module(self, record: str) -> str:
        """Return the record of the module in which a call was made, empty where it is not known."""
        parent = self.parents.get(record)
        return parent if parent is not None else self.parents.get(forward_of(record)) or ""


def _read(path: Path, kind: Any) -> Any:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DumpError(f"{path}: damaged: {error}; copy it again, or delete it to compare without it") from None
