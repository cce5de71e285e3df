"""A training of torch followed from its start to the forward pass of its first steps."""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from msprobe_hooks.errors import StartError
from msprobe_hooks.instruments.environment.random_calls import RandomCounts, ReplacedFunctions
from msprobe_hooks.instruments.environment.started import Started, rank_file, write_started
from msprobe_hooks.instruments.environment.torch_random import TorchRandom
from msprobe_hooks.instruments.environment.torch_switches import torch_switches
from msprobe_hooks.instruments.environment.torch_values import batch, weights_and_buffers
from msprobe_hooks.torch.process_group import process_rank


class TorchStart:
    """Follows one process; ``follow`` names its model, else that is the first module with parameters that is called.

    The file is written at each of the first ``steps`` calls of the model, at the end of a process that never calls it.
    Nothing of this is raised into the training.
    """

    def __init__(self, folder: Path, started: Started, steps: int) -> None:
        self._folder = folder
        self._started = started
        self._steps = steps
        self._step = 0
        self._counts = RandomCounts()
        self._random = (ReplacedFunctions(self._counts), TorchRandom(self._counts))
        self._hook: Any = None
        self._stop_waiting: Callable[[], None] | None = None
        self._process = os.getpid()

    def begin(self) -> None:
        """Count random calls from here on, and wait for the model."""
        self._started.watched = [name for each in self._random for name in each.names]
        for each in self._random:
            each.begin()
        self._wait_for_model()
        atexit.register(self._at_exit)

    def follow(self, model: nn.Module) -> None:
        """Name the model."""
        self._end_waiting()
        if self._hook is not None:
            self._hook.remove()
        self._hook = model.register_forward_pre_hook(_uncompiled(self._before_forward), with_kwargs=True)

    def _wait_for_model(self) -> None:
        # A hook for all modules is not told keyword arguments, which is where a batch mostly is.
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._process == os.getpid() and next(module.parameters(), None) is not None:
                self.follow(module)
            return original(module, *args, **kwargs)

        def stop() -> None:
            if nn.Module.__call__ is call:
                nn.Module.__call__ = original  # type: ignore[method-assign]

        nn.Module.__call__ = call  # type: ignore[method-assign]
        self._stop_waiting = stop

    def _end_waiting(self) -> None:
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None

    def _before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._process != os.getpid():
            return
        if self._step == 0:
            self._end_start()
        try:
            self._note_step(model, args, kwargs)
        except Exception as error:
            self._started.problems.append(f"step {self._step}: {type(error).__name__}: {error}")
        self._write()
        self._step += 1
        if self._step >= self._steps:
            self._hook.remove()

    def _note_step(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        started, step = self._started, self._step
        started.batches = {**(started.batches or {}), step: batch(args, kwargs)}
        weights, buffers = weights_and_buffers(model)
        started.weights = {**(started.weights or {}), step: weights}
        started.buffers = {**(started.buffers or {}), step: buffers}

    def _end_start(self) -> None:
        """Take what holds until the first forward pass."""
        for each in self._random:
            each.end()
        started = self._started
        started.rank, started.world = _place()
        started.random = self._counts.calls()
        started.switches = torch_switches()
        started.seeds = {**self._counts.seeds, **_generator_states(self._counts.seeds)}

    def _at_exit(self) -> None:
        if self._process == os.getpid() and self._step == 0:
            self._end_waiting()
            self._end_start()
            self._started.problems.append("no model was called")
            self._write()

    def _write(self) -> None:
        try:
            write_started(rank_file(self._folder, self._started.rank), self._started)
        except StartError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _uncompiled(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that a compiler passes over; nothing of one is loaded for it."""
    if "torch._dynamo" not in sys.modules:
        return hook
    disabled: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return disabled


def _place() -> tuple[int, int]:
    """Return rank and number of ranks: of the process group, or as a launcher says."""
    rank = process_rank()
    if rank is not None:
        return rank, torch.distributed.get_world_size()
    texts = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(texts[0]), int(texts[1])) if all(text.isdecimal() for text in texts) else (0, 1)


def _generator_states(seeded: dict[str, str]) -> dict[str, str]:
    """Return torch's seed, and digests of what each generator has come to.

    Python's and numpy's count only where something seeded them: else they begin anew in each process.
    """
    states = {
        "torch.initial_seed": str(torch.initial_seed()),
        "state of torch": _digest(torch.get_rng_state().numpy().tobytes()),
    }
    if "random.seed" in seeded:
        states["state of random"] = _digest(repr(random.getstate()).encode())
    if "np.random.seed" in seeded:
        kind, keys, *place = np.random.get_state(legacy=True)
        states["state of np.random"] = _digest(repr((kind, np.asarray(keys).tobytes(), place)).encode())
    for kind in ("cuda", "npu"):
        library: Any = getattr(torch, kind, None)
        if library is not None and library.is_initialized():
            states[f"state of torch.{kind}"] = _digest(library.get_rng_state().numpy().tobytes())
    return states


def _digest(state: bytes) -> str:
    return hashlib.blake2b(state, digest_size=16).hexdigest()
