"""Counts of random functions' calls, by function and call stack."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from msprobe_hooks.extensions.environment.start_file import RandomCalls
from msprobe_hooks.recording.stacks import Stack, StackTable

#: Functions of Python and numpy that draw from, or seed, the generator that a whole process shares.
_PYTHON = (
    *("random", "randint", "uniform", "choice", "choices", "gauss", "normalvariate", "randrange", "sample", "shuffle"),
    "seed",
)
_NUMPY = (
    *("rand", "randint", "choice", "normal", "randn", "random", "random_sample", "uniform", "shuffle", "permutation"),
    *("standard_normal", "beta", "binomial", "seed"),
)


class RandomCounts:
    """Counts calls of random functions by the stacks of the thread that made this."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._stacks = StackTable()
        self._counts: dict[str, Counter[Stack]] = {}
        #: What each generator was last seeded with, in words.
        self.seeds: dict[str, str] = {}

    def note(self, name: str, frame: FrameType | None) -> None:
        """Count one call."""
        if threading.get_ident() == self._thread:
            self._counts.setdefault(name, Counter())[self._stacks.stack(frame)] += 1

    def note_seed(self, name: str, args: Any, kwargs: Any) -> None:
        """Keep what a generator was seeded with."""
        self.seeds[name] = ", ".join(map(repr, (*args, *kwargs.values()))) or "none"

    def calls(self) -> dict[str, list[RandomCalls]]:
        """Return what was counted, by function."""
        calls: dict[str, list[RandomCalls]] = {}
        for name, counts in self._counts.items():
            # Two calls in one line are two stacks of the same words.
            by_words = Counter[tuple[str, ...]]()
            for stack, count in counts.items():
                by_words[self._in_words(stack)] += count
            calls[name] = [RandomCalls(list(words), count) for words, count in by_words.items()]
        return calls

    def _in_words(self, stack: Stack) -> tuple[str, ...]:
        """Return a stack as msprobe has it: from the outermost frame in, one line each."""
        return tuple(frame.replace("\n ", "") for frame in reversed(self._stacks.in_words(stack)))


class ReplacedFunctions:
    """Random functions of Python and numpy, counted until ``end``.

    They are replaced, for they are methods of an object that has no place of its own for something around them.
    """

    def __init__(self, counts: RandomCounts) -> None:
        self._counts = counts
        self._originals: list[tuple[ModuleType, str, Any]] = []

    @property
    def names(self) -> list[str]:
        """Return what is counted."""
        return [*(f"random.{name}" for name in _PYTHON), *(f"np.random.{name}" for name in _NUMPY)]

    def begin(self) -> None:
        """Replace each by a counting function."""
        for module, prefix, names in ((random, "random", _PYTHON), (np.random, "np.random", _NUMPY)):
            for name in names:
                original = getattr(module, name)
                self._originals.append((module, name, original))
                setattr(module, name, self._counting(f"{prefix}.{name}", original))

    def end(self) -> None:
        """Restore what still is in its place; what somebody else has put there since stays."""
        for module, name, original in self._originals:
            if getattr(getattr(module, name), "__wrapped__", None) is original:
                setattr(module, name, original)
        self._originals = []

    def _counting(self, qualified: str, original: Callable[..., Any]) -> Callable[..., Any]:
        counts, is_seed = self._counts, qualified.endswith(".seed")

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts.note(qualified, sys._getframe(1))
            if is_seed:
                counts.note_seed(qualified, args, kwargs)
            return original(*args, **kwargs)

        counted.__name__, counted.__doc__ = original.__name__, original.__doc__
        counted.__wrapped__ = original  # type: ignore[attr-defined]
        return counted
