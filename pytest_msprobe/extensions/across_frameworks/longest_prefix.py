"""Entries of a mapping found in dotted names by runs of whole words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
Words = tuple[str, ...]


class LongestFirst(Generic[T]):
    """Entries by their words; a look-up takes as long as there are different numbers of words, not entries."""

    def __init__(self, entries: Mapping[Words, T]) -> None:
        self._entries = entries
        self._lengths = sorted({len(words) for words in entries}, reverse=True)

    def at(self, words: Sequence[str], start: int) -> tuple[Words, T] | None:
        """Return the longest entry whose words stand at a place in a name, None where there is none."""
        for length in self._lengths:
            key = tuple(words[start : start + length])
            if len(key) == length and key in self._entries:
                return key, self._entries[key]
        return None

    def within(self, words: Sequence[str]) -> Iterator[Words]:
        """Yield the words of every entry that is anywhere in a name."""
        for length in self._lengths:
            for i in range(len(words) - length + 1):
                key = tuple(words[i : i + length])
                if key in self._entries:
                    yield key
