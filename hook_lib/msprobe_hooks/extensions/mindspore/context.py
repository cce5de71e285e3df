"""MindSpore in this process: its settings, its random numbers, and its compilations of cells' graphs and functions."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Tensor, ops
from mindspore.common import api
from mindspore.communication import GlobalComm, get_rank

from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.recording.backward import mapped

_OLDEST = (2, 9)

CELLS: Final = api._CellGraphExecutor
FUNCTIONS: Final = api._JitExecutor


def process_rank() -> int | None:
    """Return this process's rank, None where communication is not initialised."""
    return int(get_rank()) if GlobalComm.INITED else None


def require_backward_passes() -> None:
    """Raise RecordingError where MindSpore does not say which backward pass runs, and what its nodes are."""
    version = tuple(int(part) for part in mindspore.__version__.split(".")[:2])
    if version < _OLDEST:
        raise RecordingError(
            f"MindSpore {mindspore.__version__} cannot be recorded, as it does not say which call a gradient is of; "
            "install MindSpore 2.9 or newer, or record with msprobe, whose dumps can be checked here"
        )


def is_pynative() -> bool:
    """Return whether calls run one by one, and not as a graph."""
    return bool(mindspore.get_context("mode") == mindspore.PYNATIVE_MODE)


def require_pynative() -> None:
    """Raise ConfigError where no call can be seen: in graph mode."""
    if not is_pynative():
        raise ConfigError("mode", "GRAPH_MODE", "mindspore.PYNATIVE_MODE, as calls inside a graph cannot be observed")


class RandomNumbers:
    """The states of the generators that a program draws from: Python's, numpy's, MindSpore's and ``generators``.

    Kernels of older random primitives have a state of their own, which cannot be read; `Draws` repeats what they gave.
    """

    def __init__(self, generators: Sequence[mindspore.Generator] = ()) -> None:
        self._states = [(one, one.get_state()) for one in (mindspore.default_generator, *generators)]
        self._numpy, self._python = np.random.get_state(), random.getstate()
        self._seeds = dict(_kernel_seeds())

    def have_moved(self) -> bool:
        """Return whether numbers were drawn since this was made."""
        return (
            random.getstate() != self._python
            or not all(map(np.array_equal, np.random.get_state(), self._numpy))
            or not all(np.array_equal(one.get_state().asnumpy(), state.asnumpy()) for one, state in self._states)
        )

    def restore(self) -> None:
        """Undo what was drawn since."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        for generator, state in self._states:
            generator.set_state(state)
        _kernel_seeds().clear()
        _kernel_seeds().update(self._seeds)


def _kernel_seeds() -> dict[Any, Any]:
    """Return the seeds of the primitives that are made next. A function has the name of their module."""
    seeds: dict[Any, Any] = getattr(sys.modules["mindspore.common.seed"], "_KERNEL_SEED", {})
    return seeds


_DROPOUTS: Final = ("Dropout", "Dropout2D", "Dropout3D")
_DRAWING: Final = (
    *("Bernoulli", "Gamma", "LogUniformCandidateSampler", "Multinomial", "MultinomialWithReplacement"),
    *("ParameterizedTruncatedNormal", "Poisson", "RandomCategorical", "RandomChoiceWithMask", "RandomGamma"),
    *("RandomPoisson", "RandomShuffle", "Randperm", "RandpermV2", "StandardLaplace", "StandardNormal"),
    *("TruncatedNormal", "Uniform", "UniformCandidateSampler", "UniformInt", "UniformReal"),
)


class Draws:
    """Random primitives that give, when a pass is made again, what they gave when it was first made.

    Dropout multiplies by its first mask, as its kernel does: in float32, or float64 for such.
    """

    def __init__(self) -> None:
        #: How many results the pass has taken until now.
        self.count = 0
        #: Whether what is called is not the program's.
        self.is_busy = False
        #: The primitives that drew other numbers than in the first pass.
        self.lost: set[str] = set()
        self._kept: list[tuple[str, tuple[Tensor, ...]]] = []
        self._is_first = True

    def table(self) -> Iterator[tuple[Any, str, str]]:
        """Yield owner, attribute and name of the primitives' methods, each of which `wrap` returns another for."""
        for name in (*_DROPOUTS, *_DRAWING):
            primitive = getattr(ops, name, None) or getattr(ops.operations, name, None)
            if primitive is not None:
                yield primitive, "__call__", name

    @contextmanager
    def following(self, *, drawn: int = 0) -> Iterator[None]:
        """Begin a pass, or what follows on so many draws of it."""
        former, self.count = self.count, drawn
        try:
            yield
        finally:
            self._is_first = False
            self.count = former

    def copies(self, values: Any) -> Any:
        """Return nested values with copies of their tensors."""
        self.is_busy = True
        try:
            with mindspore._no_grad():
                return mapped(lambda tensor: tensor.copy(), Tensor, values)
        finally:
            self.is_busy = False

    def wrap(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a method that gives what the first pass gave."""

        def call(primitive: Any, *args: Any) -> Any:
            place, self.count = self.count, self.count + 1
            if self._is_first:
                results = method(primitive, *args)
                self._kept.append((name, self.copies(results if isinstance(results, tuple) else (results,))))
                return results
            former, results = self._kept[place] if place < len(self._kept) else ("", ())
            if former != name or (name in _DROPOUTS and results[1].shape != args[0].shape):
                self.lost.add(name)
                return method(primitive, *args)
            if name in _DROPOUTS:
                return _dropped(args[0], results[1], primitive.keep_prob), results[1]
            copies: tuple[Tensor, ...] = self.copies(results)
            return copies if len(copies) > 1 else copies[0]

        return call


def _dropped(x: Tensor, mask: Tensor, keep_prob: float) -> Tensor:
    # By primitives, which nothing that looks at functions sees.
    multiply, cast = ops.Mul(), ops.Cast()
    wide = mindspore.float64 if x.dtype == mindspore.float64 else mindspore.float32
    scale = Tensor(np.float32(1) / np.float32(keep_prob), wide)
    return cast(multiply(cast(multiply(x, cast(mask, x.dtype)), wide), scale), x.dtype)


class Compilations:
    """Has what some executors compile compiled inside of a context, until ``end``."""

    def __init__(self, executors: tuple[Any, ...], context: Callable[[], AbstractContextManager[None]]) -> None:
        self._former: list[tuple[Any, Callable[..., Any]]] = []
        for executor in executors:
            compile_ = executor.compile
            self._former.append((executor, compile_))
            executor.compile = _inside(context, compile_)

    def end(self) -> None:
        """Restore their compilation; a second time does nothing."""
        for executor, compile_ in self._former:
            executor.compile = compile_
        self._former.clear()


def _inside(context: Callable[[], AbstractContextManager[None]], compile_: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        with context():
            return compile_(*args, **kwargs)

    return compiled
