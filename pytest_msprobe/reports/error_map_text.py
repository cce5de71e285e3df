"""An error map in plain characters, for a terminal."""

from __future__ import annotations

import math

from pytest_msprobe.results.error_map import LEVELS, NO_ELEMENT, NOT_FINITE, ErrorMap, decades_over, worse

_MOST_LINES, _MOST_ACROSS = 16, 64

KEY = ". right   - within the limit   1-9 above it by up to 10 ... 10^9   # NaN or inf"


def map_lines(found: ErrorMap) -> list[str]:
    """Return the map as lines of characters with what they are of: 16 at most, of 64 characters.

    Where all of it looks alike, only the line on the wrong elements is left.
    """
    high, wide = -(-len(found.lines) // _MOST_LINES), -(-len(found.lines[0]) // _MOST_ACROSS)
    drawn = [_line(found.lines[top : top + high], wide) for top in range(0, len(found.lines), high)]
    if len(set("".join(drawn)) - {NO_ELEMENT}) == 1:
        return [_wrong_elements(found)]
    block = found.block[0] * high, found.block[1] * wide
    return [
        f"{_folded(found)}, a character is {block[0]} x {block[1]} elements",
        *(f"|{line}|" for line in drawn),
        KEY,
        _wrong_elements(found),
    ]


def _wrong_elements(found: ErrorMap) -> str:
    count = math.prod(found.shape)
    if found.wrong == count > 1:
        return f"all elements are wrong: beyond {found.allowed}"
    place = f", {'at' if found.wrong == 1 else 'all in'} {found.place}" if found.place else ""
    return f"{found.wrong} of {count} elements beyond {found.allowed}{place}"


def _folded(found: ErrorMap) -> str:
    if found.split is None:
        return f"{found.shape} in lines of {found.columns}"
    return f"{found.shape} as {found.rows} x {found.columns}"


def _line(lines: tuple[str, ...], wide: int) -> str:
    return "".join(_character(lines, left, wide) for left in range(0, len(lines[0]), wide))


def _character(lines: tuple[str, ...], left: int, wide: int) -> str:
    level = NO_ELEMENT
    for line in lines:
        for each in line[left : left + wide]:
            level = worse(level, each)
    if level == NO_ELEMENT:
        return " "
    if level == NOT_FINITE:
        return "#"
    if level == LEVELS[0]:
        return "."
    return str(min(decades_over(level), 9)) if decades_over(level) else "-"
