"""The search for drawn inputs that tell: whose results show what the recorded ones did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.trial import Trial
from pytest_msprobe.engine.replay.variety import lost_gradients, lost_results, lost_variety
from pytest_msprobe.engine.values.tree import map_tensors
from pytest_msprobe.results.skips import Skip


class TellingInputs:
    """What the drawn inputs of a call were found to lack, for each direction that was looked at.

    Neither a trial nor a tensor is kept.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lost: dict[Direction, str] = {}
        self._lost_results = ""

    def better_of(self, trial: Trial, narrower: Callable[[], Trial], direction: Direction) -> Trial:
        """Return the trial, or that of narrower inputs where only its golden results show what the recorded ones do.

        A direction is looked at once. Raises Skip as the trial's golden runs do.
        """
        if direction in self._lost:
            return trial
        self._lost[direction] = lost_variety(trial, self._call, direction)
        if self._lost[direction]:
            # Other inputs that an operation rejects, or for which there is no memory left, show even less.
            with contextlib.suppress(Skip):
                narrow = narrower()
                if not lost_variety(narrow, self._call, direction):
                    self._lost[direction] = ""
                    return narrow
        return trial

    def lost(self, direction: Direction) -> str:
        """Say what golden's results lack that the recorded ones show; empty where nothing is known to be lost."""
        return self._lost.get(direction, "")

    def look_at(self, fetch: Callable[[torch.Tensor], torch.Tensor], output: Any) -> None:
        """See what results on a device lack, which may not stay until their gradients are judged."""
        self._lost_results = lost_results(map_tensors(fetch, output), self._call)

    def is_shown_by(self, trial: Trial, direction: Direction) -> bool:
        """Tell whether the target's results show what the recorded ones do; raises as the target's runs do.

        For gradients the results have been looked at when they were there.
        """
        fetch = trial.device.get
        if direction == "forward":
            return not lost_results(map_tensors(fetch, trial.target.output), self._call)
        gradients = map_tensors(fetch, trial.target_gradients)
        return not self._lost_results and not lost_gradients(gradients, self._call)
