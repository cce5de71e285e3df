"""Random functions of torch, counted without being replaced."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from msprobe_hooks.extensions.environment.random_calls import RandomCounts
from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.torch.apis import Api, ApiTable
from msprobe_hooks.torch.call_mode import CallMode
from msprobe_hooks.torch.threads import ThisThread

_FUNCTIONS = (
    *("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "randperm", "normal", "bernoulli"),
    "multinomial",
)
_METHODS = (
    *("exponential_", "geometric_", "log_normal_", "cauchy_", "normal_", "uniform_", "bernoulli_", "random_"),
    *("bernoulli", "multinomial"),
)
# What these call inside is not seen.
_INITIALISING = ("uniform_", "normal_", "kaiming_uniform_")
_SEED = "torch.manual_seed"
_BETWEEN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))


class TorchRandom:
    """Counts what draws from torch's generators, or seeds them, between ``begin`` and ``end``."""

    def __init__(self, counts: RandomCounts) -> None:
        table: ApiTable = {getattr(torch, name): Api(f"torch.{name}") for name in _FUNCTIONS}
        table |= {getattr(torch.Tensor, name): Api(f"torch.Tensor.{name}") for name in _METHODS}
        table |= {getattr(torch.nn.init, name): Api(f"torch.nn.init.{name}") for name in _INITIALISING}
        self._names = [api.qualified for api in table.values()]
        self._counts = counts
        self._mode = ThisThread(_CountingMode(table, counts))
        self._seeding: Interposition | None = None

    @property
    def names(self) -> list[str]:
        """Return what is counted."""
        return [*self._names, _SEED]

    def begin(self) -> None:
        """Begin counting."""
        self._mode.begin()
        self._seeding = Interposition(torch.manual_seed, self._seed)

    def end(self) -> None:
        """End counting."""
        self._mode.end()
        if self._seeding is not None:
            self._seeding.remove()
            self._seeding = None

    def _seed(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._counts.note_seed(_SEED, args, kwargs)
        frame: FrameType | None = sys._getframe()
        # It is decorated, by other functions in each version.
        while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
            frame = frame.f_back
        self._counts.note(_SEED, frame)
        return function(*args, **kwargs)


class _CountingMode(CallMode):
    """Makes every call as it is, and counts those of the table."""

    def __init__(self, table: ApiTable, counts: RandomCounts) -> None:
        super().__init__(table)
        self._counts = counts

    def make(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Count a call and make it."""
        self._counts.note(api.qualified, frame)
        return func(*args, **kwargs)

    def note_error(self, where: str, error: Exception) -> None:
        """Ignore it: there is nothing that could fail."""
