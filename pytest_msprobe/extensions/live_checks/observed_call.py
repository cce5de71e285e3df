"""A call that the training has made, as its check needs it, and the sink of results, which has one check at a time."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import torch

from msprobe_hooks.dump.memory_layouts import span
from msprobe_hooks.errors import ConfigError
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.strides import as_laid_out
from pytest_msprobe.errors import UserError
from pytest_msprobe.extensions.live_checks.scheduling import Turns
from pytest_msprobe.results.result import DirectionResult

_FRAMES = 8

Stack = Sequence[tuple[CodeType, int]]

# The check that is on in each process: a forked child has what its parent had, under its parent's number.
_checking: dict[int, object] = {}


@dataclass(frozen=True, slots=True)
class Observed:
    """A call that was seen. ``name`` is that of its forward record.

    ``forward`` is the record as JSON, ``inputs`` holds copies of the tensors that it names, as they were before the
    call, on the CPU. ``args`` and ``kwargs`` are the training's own, and ``versions`` the versions that its tensors had
    before. ``stack`` is where it was called, from the innermost frame out.
    """

    name: str
    forward: bytes
    inputs: Mapping[str, torch.Tensor]
    args: Any
    kwargs: Any
    versions: Mapping[str, int]
    output: Any
    stack: Stack


@dataclass(frozen=True)
class Awaiting:
    """Part of a call that is kept until its gradients come: nothing that belongs to the training or to its graph.

    ``turns`` are those of the gradients of its kind. ``run`` holds copies. ``shared`` are the groups of inputs that are
    one tensor, by their place among those that require a gradient.
    """

    name: str
    turns: Turns
    forward: bytes
    inputs: Mapping[str, torch.Tensor]
    run: Run
    shared: Sequence[Sequence[int]]
    stack: Stack


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the CPU, laid out alike, that the graph knows nothing of."""
    return as_laid_out(lambda each: each.detach().to("cpu", copy=True), tensor)


def copied(run: Run) -> Run:
    """Return a run as copies on the CPU, which require a gradient where its own tensors do."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return on_cpu(tensor).requires_grad_(tensor.requires_grad)

    written = {path: copy(run.arguments[path]) for path in run.written}
    return replace(run, output=map_tensors(copy, run.output), arguments=written)


def outside_of_frameworks(stack: Stack) -> Stack:
    """Return a stack without the frameworks' own frames, or all of it where there are no others."""
    folders = _framework_folders()
    return [(code, line) for code, line in stack if not code.co_filename.startswith(folders)] or stack


def _framework_folders() -> tuple[str, ...]:
    modules = (sys.modules.get(name) for name in ("torch", "mindspore"))
    return tuple(f"{Path(module.__file__).parent}{os.sep}" for module in modules if module and module.__file__)


def called_from(stack: Stack) -> str:
    """Return where a call was made in words, from the innermost frame out."""
    lines = [
        f"  {code.co_filename}:{line}, in {code.co_name}: {linecache.getline(code.co_filename, line).strip()}"
        for code, line in outside_of_frameworks(stack)[:_FRAMES]
    ]
    return "\n".join(["Called at:", *lines])


class WaitingMemory:
    """The bytes that copies for calls may take until their gradients come, or can come no longer.

    What is reserved for a call is free again when nothing holds what is kept of it any longer.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lock = threading.RLock()

    def fits(self, size: int) -> bool:
        """Return whether so many bytes are left."""
        return size <= self._free

    def reserve(self, kept: Awaiting, size: int, end: Callable[[], None]) -> None:
        """Reserve so many bytes while ``kept`` exists; ``end`` is called when it does no longer."""
        self._add(-size)

        def free() -> None:
            self._add(size)
            end()

        weakref.finalize(kept, free).atexit = False

    def _add(self, size: int) -> None:
        with self._lock:
            self._free += size


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that copies of tensors take which are laid out alike."""
    return sum(_elements(tensor) * tensor.element_size() for tensor in tensors)


def _elements(tensor: torch.Tensor) -> int:
    return span(tensor.shape, tensor.stride()) if tensor.layout is torch.strided else tensor.numel()


class Sink(Protocol):
    """Takes one result after the other. ``failure`` says why it takes no more; the check then ends."""

    @property
    def failure(self) -> UserError | None:
        """Return what could not be written, None where all could."""

    def add(
        self, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None, stack: Stack
    ) -> None:
        """Take what came of one record; ``forward`` and ``backward`` are the call's records as JSON."""

    def close(self) -> None:
        """Close what is open."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Run the code inside as the only check of this process. Raises ConfigError where there is one already."""
    process, this = os.getpid(), object()
    if _checking.setdefault(process, this) is not this:
        raise ConfigError("live", "a check inside of another one", "one in a process at a time")
    try:
        yield
    finally:
        _checking.pop(process, None)
