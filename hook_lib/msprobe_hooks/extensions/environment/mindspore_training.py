"""Facts that only MindSpore knows of a training, and its random functions, counted without being replaced.

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
import numpy as np
from mindspore import Tensor, mint, nn, ops
from mindspore.communication import get_group_size

from msprobe_hooks.extensions.environment.random_calls import RandomCounts
from msprobe_hooks.extensions.environment.recorder import CallReport
from msprobe_hooks.extensions.environment.start_file import TensorFact, digest, fact
from msprobe_hooks.extensions.environment.torch_training import values_given
from msprobe_hooks.extensions.mindspore.context import CELLS, FUNCTIONS, Compilations, process_rank
from msprobe_hooks.extensions.mindspore.recorder import host
from msprobe_hooks.recording.array_statistics import Array, measure
from msprobe_hooks.recording.interposition import Interposition

_SWITCHES = (
    *("mode", "device_target", "deterministic", "pynative_synchronize", "jit_config", "jit_level", "jit_syntax_level"),
    *("enable_graph_kernel", "graph_kernel_flags", "runtime_num_threads", "inter_op_parallel_num"),
    *("memory_optimize_level", "infer_boost"),
)
_PARALLEL_SWITCHES = (
    *("parallel_mode", "gradients_mean", "loss_repeated_mean", "full_batch", "enable_parallel_optimizer"),
    *("search_mode", "dataset_strategy"),
)
_MODES = {mindspore.GRAPH_MODE: "GRAPH_MODE", mindspore.PYNATIVE_MODE: "PYNATIVE_MODE"}

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


class MindSporeTraining:
    """A training of MindSpore; its models are cells."""

    def counter(self, counts: RandomCounts) -> _MindSporeRandom:
        """Return what counts MindSpore's random functions."""
        return _MindSporeRandom(counts)

    def wait(self, called: Callable[[nn.Cell], None]) -> Callable[[], None]:
        """Report the first cell with parameters."""

        def first(cell: nn.Cell, *_: Any) -> None:
            if next(iter(cell.get_parameters()), None) is not None:
                called(cell)

        return _before_cells(first)

    def before_calls(self, model: nn.Cell, report: CallReport) -> Callable[[], None]:
        """Report each call of a cell. A hook of its own would become part of the graph."""

        def own(cell: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if cell is model:
                report(cell, args, kwargs)

        return _before_cells(own)

    def place(self) -> tuple[int, int] | None:
        """Return rank and number of ranks."""
        rank = process_rank()
        return None if rank is None else (rank, get_group_size())

    def switches(self) -> dict[str, str]:
        """Return what MindSpore's contexts are set to."""
        found = {name: _read(mindspore.get_context, name) for name in _SWITCHES}
        found |= {name: _read(mindspore.get_auto_parallel_context, name) for name in _PARALLEL_SWITCHES}
        # Of other devices MindSpore prints that it has none.
        if found["device_target"] == "Ascend":
            found["ascend_config"] = _read(mindspore.get_context, "ascend_config")
        return {name: str(_MODES.get(state, state) if name == "mode" else state) for name, state in found.items()}

    def generator_states(self, seeded: dict[str, str]) -> dict[str, str]:
        """Return MindSpore's seeds and a digest of what its generator has come to, where something seeded it."""
        states = {
            "mindspore.get_seed": str(mindspore.get_seed()),
            "mindspore.initial_seed": str(mindspore.initial_seed()),
        }
        if "mindspore.manual_seed" in seeded or "mindspore.set_seed" in seeded:
            states["state of mindspore"] = digest(mindspore.get_rng_state().asnumpy().tobytes())
        return states

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, TensorFact | str]:
        """Return what a cell was called with."""
        return values_given(args, kwargs, _fact_of)

    def weights_and_buffers(self, model: nn.Cell) -> tuple[dict[str, TensorFact], dict[str, TensorFact]]:
        """Return the parameters of a cell, moving statistics among them, and its buffers."""
        weights = {name: _tensor_fact(value) for name, value in model.parameters_and_names()}
        # Older ones know none.
        buffers = dict(model.named_buffers()) if hasattr(model, "named_buffers") else {}
        return weights, {name: _tensor_fact(value) for name, value in buffers.items()}


def _before_cells(report: Callable[[nn.Cell, tuple[Any, ...], dict[str, Any]], None]) -> Callable[[], None]:
    """Report calls of cells that Python makes; those inside of a graph are none."""
    original = nn.Cell.__call__

    def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        report(cell, args, kwargs)
        # Where that was the first one, others are called from now on, for this call too.
        now = nn.Cell.__call__
        return (original if now is call else now)(cell, *args, **kwargs)

    def stop() -> None:
        if nn.Cell.__call__ is call:
            nn.Cell.__call__ = original

    nn.Cell.__call__ = call
    return stop


def _read(read: Callable[[str], Any], name: str) -> Any:
    try:
        return read(name)
    except (ValueError, RuntimeError):
        # Another MindSpore lacks it.
        return None


def _fact_of(value: Any) -> TensorFact | None:
    if isinstance(value, Tensor):
        return _tensor_fact(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return _array_fact(value, str(value.dtype))
    return None


def _tensor_fact(tensor: Tensor) -> TensorFact:
    return _array_fact(host(tensor), str(tensor.dtype).lower())


def _array_fact(array: Array, dtype: str) -> TensorFact:
    return fact(measure(array), dtype, tuple(array.shape), np.ascontiguousarray(array).tobytes())


class _MindSporeRandom:
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
        for each in self._counting:
            each.remove()
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
