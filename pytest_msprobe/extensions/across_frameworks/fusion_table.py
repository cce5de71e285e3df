"""Which calls of MindSpore's are together one call of PyTorch's, by the table ``compositions.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.names import split_called
from msprobe_standards.decoding import decode_yaml

_TABLE = Path(__file__).with_name("compositions.yaml")
# The scope of a kernel, whose last part is its type with a number.
_KERNEL = re.compile(r"Kernel\.(?:.*_)?(?P<type>[A-Za-z0-9]+)-op\d+\.\d+\.\w+")
_CALL = re.compile(r"(?P<side>~?)(?P<word>[\w.]+?)(?::(?P<through>\d+))?(?P<may_be_absent>\??)")


@dataclass(frozen=True, slots=True)
class Part:
    """One of the calls of a composition; ``through`` is the input by which the tensor comes that goes through all."""

    word: str
    through: int = 0
    is_side: bool = False
    may_be_absent: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """Where an argument of PyTorch's call is: an input of a part by its index, or a setting of it by name."""

    word: str
    place: str


@dataclass(frozen=True)
class Composition:
    """One entry of the table. An argument of None has no counterpart; the one that goes through is the first."""

    pytorch: Sequence[str]
    parts: Sequence[Part]
    arguments: Sequence[Argument | None]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def anchor(self) -> int:
        """The index of the part that is always there, and whose record represents the whole."""
        return next(i for i, part in enumerate(self.parts) if not part.may_be_absent)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        groups = (f"({re.escape(part.word)} ){'?' if part.may_be_absent else ''}" for part in self.parts)
        return re.compile(rf"(?<!\S){''.join(groups)}")

    def occurrences(self, words: str, calls: Mapping[int, str]) -> Iterator[dict[int, str]]:
        """Yield the call of each part that is there, by the part's index.

        ``words`` are those of the calls in their order, each with a blank behind it; ``calls`` gives the call whose
        word begins at a place.
        """
        for match in self._pattern.finditer(words):
            yield {i: calls[match.start(i + 1)] for i in range(len(self.parts)) if match.start(i + 1) >= 0}

    def name_among(self, apis: Iterable[str]) -> str | None:
        """Return what a run of PyTorch's calls it, None where it calls none of the names."""
        return next((name for name in self.pytorch if name in apis), None)


def word_of(record: str) -> str:
    """Return what the table calls a record: the class of a primitive or the type of a kernel, or an API."""
    kernel = _KERNEL.fullmatch(record)
    if kernel is not None:
        return kernel["type"]
    called = split_called(record)[0]
    return called.rpartition(".")[2] if called.startswith("Primitive.") else called


@cache
def compositions() -> Sequence[Composition]:
    """Return the table."""
    return tuple(
        Composition(
            entry["pytorch"],
            tuple(map(_part, entry["calls"].split())),
            tuple(map(_argument, entry["arguments"].split()[1:])),
            entry.get("settings", {}),
        )
        for entry in decode_yaml(_TABLE.read_bytes())
    )


def _part(text: str) -> Part:
    match = _CALL.fullmatch(text)
    assert match is not None, text
    return Part(match["word"], int(match["through"] or 0), bool(match["side"]), bool(match["may_be_absent"]))


def _argument(text: str) -> Argument | None:
    word, _, place = text.rpartition(".")
    return Argument(word, place) if word else None
