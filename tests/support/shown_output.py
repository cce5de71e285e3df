"""Comparison of what a page shows with what a command prints."""

from __future__ import annotations

import re

import pytest

# Counts and errors of the same program differ a little between processors, whose sums are rounded in another order.
CLOSE = 0.2

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
_DOTS = re.compile(r"(?:\\ )?\\\.\\\.\\\.(?:\\ )?")


def says(output: str, shown: str) -> bool:
    """Return whether an output has a line with other blanks, numbers nearby, and any text for three dots."""
    texts = [_DOTS.sub(".*?", re.escape(text)).replace(r"\ ", r"\s+") for text in _NUMBER.split(shown)]
    expected = [float(number) for number in _NUMBER.findall(shown)]
    return any(
        [float(number) for number in match.groups()] == pytest.approx(expected, rel=CLOSE)
        for match in re.finditer(f"({_NUMBER.pattern})".join(texts), output, re.DOTALL)
    )
