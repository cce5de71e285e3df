"""Call stacks, taken as pairs of code and instruction, kept once each and put into words only when they are written."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType, FrameType

_OWN_FOLDER = str(Path(__file__).parents[1])

_WRITE_AFTER = 20_000


class StackTable:
    """Groups record names by the stack they were made on."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, ...], list[tuple[CodeType, int]]] = {}
        self._names: dict[tuple[int, ...], list[str]] = {}
        self._count = 0
        self._next_group = 0

    def add(self, name: str, frame: FrameType | None) -> None:
        """Note that a record was made in ``frame``. Frames of this package are left out when written."""
        key: list[int] = []
        top = frame
        while frame is not None:
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            frame = frame.f_back
        stack = tuple(key)
        names = self._names.get(stack)
        if names is None:
            names = self._names[stack] = []
            if stack not in self._frames:
                self._frames[stack] = code_and_lines(top)
        names.append(name)
        self._count += 1

    @property
    def is_full(self) -> bool:
        """Tell whether enough names wait to be written."""
        return self._count >= _WRITE_AFTER

    def take(self) -> list[tuple[str, tuple[list[str], list[str]]]]:
        """Hand over the waiting groups: number, names, frames from the innermost out."""
        groups = []
        for stack, names in self._names.items():
            groups.append((str(self._next_group), (names, _in_words(self._frames[stack]))))
            self._next_group += 1
        self._names = {}
        self._count = 0
        return groups


def code_and_lines(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """Return the code and the line of a frame and of those that called it, from the innermost out."""
    # Holding the code objects keeps their ids, which are the keys, from being given to others.
    frames = []
    while frame is not None:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return frames


def _in_words(frames: list[tuple[CodeType, int]]) -> list[str]:
    return [
        f"File {code.co_filename}, line {line}, in {code.co_name}, \n "
        + linecache.getline(code.co_filename, line).strip()
        for code, line in frames
        if not code.co_filename.startswith(_OWN_FOLDER)
    ]
