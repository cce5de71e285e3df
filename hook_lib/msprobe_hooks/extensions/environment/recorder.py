"""A training followed from its start to the forward pass of its first steps."""

from __future__ import annotations

import atexit
import logging
import os
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from msprobe_hooks.errors import StartError
from msprobe_hooks.extensions.environment.random_calls import RandomCounts, ReplacedFunctions
from msprobe_hooks.extensions.environment.start_file import Started, TensorFact, digest, rank_file, write_started
from msprobe_hooks.recording.safety_net import SafetyNet
from msprobe_hooks.recording.session import Model
from msprobe_hooks.recording.summary import described

_log = logging.getLogger("msprobe_hooks")

#: Takes a model, and the arguments of its call.
CallReport: TypeAlias = Callable[[Model, tuple[Any, ...], dict[str, Any]], None]


class Counter(Protocol):
    """Counts what draws random numbers, or seeds their generators, between ``begin`` and ``end``."""

    @property
    def names(self) -> Sequence[str]:
        """Return what is counted."""

    def begin(self) -> None:
        """Begin counting."""

    def end(self) -> None:
        """End counting; a second time does nothing."""


class Training(Protocol):
    """Facts of a training that only a framework knows."""

    def counter(self, counts: RandomCounts) -> Counter:
        """Return what counts the framework's own random functions."""

    def wait(self, called: Callable[[Model], None]) -> Callable[[], None]:
        """Report the first model that is called and has parameters; return what ends the waiting."""

    def before_calls(self, model: Model, report: CallReport) -> Callable[[], None]:
        """Report each call of a model before it is made; return what ends that."""

    def place(self) -> tuple[int, int] | None:
        """Return rank and number of ranks, None where the framework does not know."""

    def switches(self) -> dict[str, str]:
        """Return what chooses how the framework computes."""

    def generator_states(self, seeded: dict[str, str]) -> dict[str, str]:
        """Return what the framework's generators have come to; ``seeded`` holds which were seeded with what."""

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, TensorFact | str]:
        """Return what a model was called with, by place."""

    def weights_and_buffers(self, model: Model) -> tuple[dict[str, TensorFact], dict[str, TensorFact]]:
        """Return what a model consists of, by name."""


class Start:
    """Follows one process; ``follow`` names its model, else that is the first one with parameters that is called.

    The file is written at each of the first ``steps`` calls of the model, at the end of a process that never calls it.
    Nothing of this is raised into the training.
    """

    def __init__(self, folder: Path, started: Started, steps: int, training: Training) -> None:
        self._folder = folder
        self._started = started
        self._steps = steps
        self._training = training
        self._step = 0
        self._counts = RandomCounts()
        self._random: tuple[Counter, ...] = (ReplacedFunctions(self._counts), training.counter(self._counts))
        self._stop_following: Callable[[], None] | None = None
        self._stop_waiting: Callable[[], None] | None = None
        self._process = os.getpid()

    def begin(self) -> None:
        """Count random calls from here on, and wait for the model."""
        self._started.watched = [name for each in self._random for name in each.names]
        for each in self._random:
            each.begin()
        self._stop_waiting = self._training.wait(self._follow_first)
        atexit.register(self._at_exit)

    def follow(self, model: Model) -> None:
        """Name the model."""
        self._end_waiting()
        self._end_following()
        self._stop_following = self._training.before_calls(model, self._before_forward)

    def _follow_first(self, model: Model) -> None:
        # What waits stays where somebody else has put something around it since.
        if self._process == os.getpid() and self._stop_waiting is not None:
            with self._net("the first model"):
                self.follow(model)

    def _net(self, where: str) -> SafetyNet:
        return SafetyNet(self._note, where)

    def _note(self, where: str, error: Exception) -> None:
        self._started.problems.append(f"{where}: {described(error)}")

    def _end_waiting(self) -> None:
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None

    def _end_following(self) -> None:
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None

    def _before_forward(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._process != os.getpid():
            return
        if self._step == 0:
            with self._net("the start"):
                self._end_start()
        with self._net(f"step {self._step}"):
            self._note_step(model, args, kwargs)
        self._write()
        self._step += 1
        if self._step >= self._steps:
            with self._net("the last step"):
                self._end_following()

    def _note_step(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        started, step, training = self._started, self._step, self._training
        started.batches = {**(started.batches or {}), step: training.batch(args, kwargs)}
        weights, buffers = training.weights_and_buffers(model)
        started.weights = {**(started.weights or {}), step: weights}
        started.buffers = {**(started.buffers or {}), step: buffers}

    def _end_start(self) -> None:
        """Take what holds until the first forward pass."""
        for each in self._random:
            each.end()
        started, seeds = self._started, self._counts.seeds
        started.rank, started.world = self._training.place() or _place_by_launcher()
        started.random = self._counts.calls()
        started.switches = self._training.switches()
        started.seeds = {**seeds, **_generator_states(seeds), **self._training.generator_states(seeds)}

    def _at_exit(self) -> None:
        if self._process == os.getpid() and self._step == 0:
            with self._net("the start"):
                self._end_waiting()
                self._end_start()
            self._started.problems.append("no model was called")
            self._write()

    def _write(self) -> None:
        try:
            write_started(rank_file(self._folder, self._started.rank), self._started)
        except Exception as error:
            text = str(error) if isinstance(error, StartError) else described(error)
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:
                # Where warnings are errors, this one would be the training's.
                _log.warning("%s", text)


def _place_by_launcher() -> tuple[int, int]:
    # The variables by which torch's and MindSpore's launchers pass the rank to a process.
    for rank, world in (("RANK", "WORLD_SIZE"), ("RANK_ID", "RANK_SIZE")):
        texts = os.environ.get(rank, ""), os.environ.get(world, "")
        if all(text.isdecimal() for text in texts):
            return int(texts[0]), int(texts[1])
    return 0, 1


def _generator_states(seeded: dict[str, str]) -> dict[str, str]:
    """Return digests of what Python's and numpy's generators have come to.

    They count only where something seeded them: else they begin anew in each process.
    """
    states = {}
    if "random.seed" in seeded:
        states["state of random"] = digest(repr(random.getstate()).encode())
    if "np.random.seed" in seeded:
        kind, keys, *place = np.random.get_state(legacy=True)
        states["state of np.random"] = digest(repr((kind, np.asarray(keys).tobytes(), place)).encode())
    return states
