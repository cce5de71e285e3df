"""Call stacks, taken as pairs of code and instruction, kept once each and put into words only when they are written."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias

#: A stack as it is compared: the ids of codes and the places in them, from the innermost out.
Stack: TypeAlias = tuple[int, ...]

_OWN_FOLDER = str(Path(__file__).parents[1])

# A choice: a stack is written once per group of names, so that larger groups make a smaller file and hold more memory.
_WRITE_AFTER = 20_000


class StackTable:
    """Groups record names by the stack they were made on."""

    def __init__(self) -> None:
        self._frames: dict[Stack, list[tuple[CodeType, int]]] = {}
        self._lines: dict[Stack, list[str]] = {}
        self._stacks_of_lines: dict[tuple[str, ...], Stack] = {}
        self._names: dict[Stack, list[str]] = {}
        self._count = 0
        self._next_group = 0

    def stack(self, frame: FrameType | None) -> Stack:
        """Return the stack of a frame as it is now, known to this table from here on."""
        key: list[int] = []
        top = frame
        while frame is not None:
            key += (id(frame.f_code), frame.f_lasti)
            frame = frame.f_back
        stack = tuple(key)
        if stack not in self._frames:
            self._frames[stack] = code_and_lines(top)
        return stack

    def stack_of_lines(self, lines: tuple[str, ...]) -> Stack:
        """Return the stack that is written as these lines, known to this table from here on."""
        stack = self._stacks_of_lines.setdefault(lines, (-1, len(self._stacks_of_lines)))
        self._lines[stack] = list(lines)
        return stack

    def add(self, name: str, stack: Stack) -> None:
        """Note that a record was made on a stack. Frames of this package are left out when written."""
        self._names.setdefault(stack, []).append(name)
        self._count += 1

    def in_words(self, stack: Stack) -> list[str]:
        """Return the frames of a stack as they are written, from the innermost out."""
        if stack not in self._lines:
            # The same calls come at each step.
            self._lines[stack] = _in_words(self._frames[stack])
        return self._lines[stack]

    @property
    def is_full(self) -> bool:
        """Return whether enough names wait to be written."""
        return self._count >= _WRITE_AFTER

    def take(self) -> list[tuple[str, tuple[list[str], list[str]]]]:
        """Hand over the waiting groups: number, names, frames from the innermost out."""
        groups = []
        for stack, names in self._names.items():
            groups.append((str(self._next_group), (names, self.in_words(stack))))
            self._next_group += 1
        self._names = {}
        self._count = 0
        return groups


def code_and_lines(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """Return the code and the line of a frame and of those that called it, from the innermost out."""
    # Holding the code objects keeps their ids, which are the keys, from being given to others.
    frames = []
    while frame is not None:
        # What a tool made of bytecode may have no lines.
        frames.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return frames


def stack_of(frame: FrameType | None) -> list[str]:
    """Return the stack of a frame in words, as a dump has it, from the innermost out."""
    return _in_words(code_and_lines(frame))


def _in_words(frames: list[tuple[CodeType, int]]) -> list[str]:
    return [
        f"File {code.co_filename}, line {line}, in {code.co_name}, \n "
        + linecache.getline(code.co_filename, line).strip()
        for code, line in frames
        if not code.co_filename.startswith(_OWN_FOLDER)
    ]
