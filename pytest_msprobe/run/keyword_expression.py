"""``-k``: expressions over the names of records, with the meaning that they have for pytest.

pytest's own evaluator is private and wants items. The grammar is small, and tests hold it to select what ``pytest -k``
selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pytest_msprobe.errors import KeywordError

_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
_OPERATORS = ("and", "or", "not", "(", ")")

# Tells whether a text matches that holds all names of an item in lower case; no word has the space between them.
_Matcher = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Keywords:
    """An expression. ``words`` are those that it asks for and ``matches`` is passed names, both in lower case."""

    words: frozenset[str]
    matches: _Matcher

    def __call__(self, names: Iterable[str]) -> bool:
        """Return whether an item of these names matches."""
        return self.matches(lowered(names))


def lowered(names: Iterable[str]) -> str:
    """Return names as the text that `Keywords.matches` takes."""
    return "\n".join(name.lower() for name in names)


def parse_keywords(expression: str) -> Keywords:
    """Read an expression of words, ``and``, ``or``, ``not`` and parentheses.

    A word matches where one of the names contains it, in whichever case. Raises KeywordError.
    """
    tokens = _Tokens(expression)
    matches = _either(tokens)
    if tokens.next is not None:
        raise tokens.error("and, or, or the end")
    return Keywords(frozenset(tokens.words), matches)


class _Tokens:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._rest: Iterator[re.Match[str]] = _TOKEN.finditer(expression.rstrip())
        self.next: str | None = None
        self._place = 0
        self.words: list[str] = []
        self.advance()

    def advance(self) -> None:
        match = next(self._rest, None)
        self.next = match and match[1]
        self._place = match.start(1) if match else len(self._expression)

    def take(self, token: str) -> bool:
        is_next = self.next == token
        if is_next:
            self.advance()
        return is_next

    def error(self, expected: str) -> KeywordError:
        actual = "the end" if self.next is None else repr(self.next)
        return KeywordError(f"at column {self._place + 1}: expected {expected}, found {actual}")


def _either(tokens: _Tokens) -> _Matcher:
    parts = [_both(tokens)]
    while tokens.take("or"):
        parts.append(_both(tokens))
    return parts[0] if len(parts) == 1 else lambda text: any(part(text) for part in parts)


def _both(tokens: _Tokens) -> _Matcher:
    parts = [_one(tokens)]
    while tokens.take("and"):
        parts.append(_one(tokens))
    return parts[0] if len(parts) == 1 else lambda text: all(part(text) for part in parts)


def _one(tokens: _Tokens) -> _Matcher:
    if tokens.take("not"):
        denied = _one(tokens)
        return lambda text: not denied(text)
    if tokens.take("("):
        inner = _either(tokens)
        if not tokens.take(")"):
            raise tokens.error("a closing parenthesis")
        return inner
    word = tokens.next
    if word is None or word in _OPERATORS:
        raise tokens.error("a word, not or a parenthesis")
    tokens.advance()
    tokens.words.append(word.lower())
    return _contains(word.lower())


def _contains(word: str) -> _Matcher:
    return lambda text: word in text
