"""``-k``: expressions over the names of records, with the meaning that they have for pytest.

pytest's own evaluator is private, and collecting with pytest would run the project's conftest.py and settings only to
compare names. The grammar is small, and a test holds it to select what ``pytest -k`` selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from pytest_msprobe.errors import KeywordError

_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
_OPERATORS = ("and", "or", "not", "(", ")")

#: Tells whether the names of one item match.
Matcher = Callable[[Iterable[str]], bool]


def parse_keywords(expression: str) -> Matcher:
    """Read an expression of words, ``and``, ``or``, ``not`` and parentheses.

    A word matches where one of the names contains it, in whichever case. Raises KeywordError.
    """
    tokens = _Tokens(expression)
    matcher = _either(tokens)
    if tokens.next is not None:
        raise tokens.error("and, or, or the end")
    return lambda names: matcher([name.lower() for name in names])


class _Tokens:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._rest: Iterator[re.Match[str]] = _TOKEN.finditer(expression.rstrip())
        self.next: str | None = None
        self._place = 0
        self.advance()

    def advance(self) -> None:
        match = next(self._rest, None)
        self.next = match and match[1]
        self._place = match.start(1) if match else len(self._expression)

    def take(self, token: str) -> bool:
        found = self.next == token
        if found:
            self.advance()
        return found

    def error(self, wanted: str) -> KeywordError:
        found = "the end" if self.next is None else repr(self.next)
        return KeywordError(f"at column {self._place + 1}: expected {wanted}, found {found}")


def _either(tokens: _Tokens) -> Matcher:
    parts = [_both(tokens)]
    while tokens.take("or"):
        parts.append(_both(tokens))
    return lambda names: any(part(names) for part in parts)


def _both(tokens: _Tokens) -> Matcher:
    parts = [_one(tokens)]
    while tokens.take("and"):
        parts.append(_one(tokens))
    return lambda names: all(part(names) for part in parts)


def _one(tokens: _Tokens) -> Matcher:
    if tokens.take("not"):
        denied = _one(tokens)
        return lambda names: not denied(names)
    if tokens.take("("):
        inner = _either(tokens)
        if not tokens.take(")"):
            raise tokens.error("a closing parenthesis")
        return inner
    word = tokens.next
    if word is None or word in _OPERATORS:
        raise tokens.error("a word, not or a parenthesis")
    tokens.advance()
    lowered = word.lower()
    return lambda names: any(lowered in name for name in names)
