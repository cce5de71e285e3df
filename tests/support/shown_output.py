"""Comparison of what a page shows with what a command prints."""

from __future__ import annotations

import re

import pytest

# Counts and errors of the same program differ a little between processors, whose sums are rounded in another order.
CLOSE = 0.2

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
# Three dots, and no more: pytest prints one for each test.
_DOTS = re.compile(r"\s*(?<!\.)\.{3}(?!\.)\s*")


def says(output: str, shown: str) -> bool:
    """Return whether an output has a line with other blanks, numbers nearby, and any text for three dots."""
    position: int | None = 0
    for part in filter(None, _DOTS.split(" ".join(shown.split()))):
        position = _end_of(part, output, position)
        if position is None:
            return False
    return True


def _end_of(part: str, output: str, position: int) -> int | None:
    """Return where the first text ends that is such a part of a line, from a position on; None where there is none."""
    texts = [re.escape(text).replace(r"\ ", r"\s+") for text in _NUMBER.split(part)]
    expected = pytest.approx([float(number) for number in _NUMBER.findall(part)], rel=CLOSE)
    matches = re.compile(f"({_NUMBER.pattern})".join(texts)).finditer(output, position)
    return next((match.end() for match in matches if [float(number) for number in match.groups()] == expected), None)


def not_printed(shown: str, output: str) -> str | None:
    """Return the first line that a page shows and an output does not have, None where it has all.

    Numbers with a point, the lengths of rules and the names of machines are not compared: other machines have others.
    """
    printed = _comparable(output)
    lines = (line for line in shown.splitlines() if line.strip(" ."))
    return next((line for line in lines if not says(printed, _comparable(line))), None)


def _comparable(text: str) -> str:
    text = re.sub(r"([=_-])\1{2,}", r"\1", text)
    text = re.sub(r"on \w+ CPU, torch [\w.+]+, \d+ threads", "on CPU", text)
    return re.sub(r"-?\d+\.\d+(e[+-]\d+)?|\d{14}", "#", text)
