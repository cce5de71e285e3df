"""What screening alone says of a call, without the exact check that follows it."""

from __future__ import annotations

from functools import partial
from typing import Any

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.extensions.screening.screen_trial import cleared


def directions_cleared(replay: Replay) -> list[Direction]:
    """Return which directions of a call with gradients are cleared."""
    trial, setup = replay.trial, replay.setup
    of_call = partial(setup.policy.select, replay.call.api, input_dtypes=trial.subject.arguments.tensor_dtypes)

    def select(leaf: Any, *, backward: bool) -> Any:
        return of_call(output_dtype=leaf.dtype, backward=backward)

    directions: tuple[Direction, ...] = ("forward", "backward")
    return [each for each in directions if cleared(trial, each, partial(select, backward=each == "backward"), setup)]
