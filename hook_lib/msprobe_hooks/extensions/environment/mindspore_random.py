"""Random functions of MindSpore, counted without being replaced.

What compiles a program reads the source of the functions that it calls, so that counting ends before anything is
compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import mindspore
from mindspore import mint, ops

from msprobe_hooks.extensions.environment.random_calls import RandomCounts
from msprobe_hooks.extensions.mindspore.compilation_watch import CELLS, FUNCTIONS, Compilations
from msprobe_hooks.recording.interposition import Interposition

_IN_OPS = (
    *("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "randperm", "normal", "uniform"),
    *("standard_normal", "standard_laplace", "multinomial", "bernoulli", "gamma", "laplace", "random_poisson"),
    *("random_gamma", "random_categorical", "shuffle"),
)
_IN_MINT = (
    *("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "randperm", "normal", "bernoulli"),
    "multinomial",
)
_SEEDS = ("set_seed", "manual_seed")
_BETWEEN = (str(Path(mindspore.__file__).parent), str(Path(__file__).parents[2]))


class MindSporeRandom:
    """Counts what draws from MindSpore's generators, or seeds them, between ``begin`` and ``end``."""

    def __init__(self, counts: RandomCounts) -> None:
        self._counts = counts
        places = (("mindspore.ops", ops, _IN_OPS), ("mindspore.mint", mint, _IN_MINT), ("mindspore", mindspore, _SEEDS))
        self._functions = {
            f"{prefix}.{name}": getattr(module, name)
            for prefix, module, names in places
            for name in names
            if hasattr(module, name)
        }
        self._counting: list[Interposition] = []
        self._compilations: Compilations | None = None

    @property
    def names(self) -> list[str]:
        """Return what is counted."""
        return list(self._functions)

    def begin(self) -> None:
        """Begin counting."""
        for name, function in self._functions.items():
            self._counting.append(Interposition(function, self._noting(name)))
        self._compilations = Compilations((CELLS, FUNCTIONS), self._uncounted)

    def end(self) -> None:
        """End counting."""
        for hook in self._counting:
            hook.remove()
        self._counting.clear()
        if self._compilations is not None:
            self._compilations.end()

    def _noting(self, name: str) -> Callable[[Callable[..., Any], Any, Any], Any]:
        counts, is_seed = self._counts, name.rpartition(".")[2] in _SEEDS

        def noting(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            frame: FrameType | None = sys._getframe()
            # Others of MindSpore's functions draw by these.
            while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
                frame = frame.f_back
            counts.note(name, frame)
            if is_seed:
                counts.note_seed(name, args, kwargs)
            return function(*args, **kwargs)

        return noting

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        self.end()
        yield
