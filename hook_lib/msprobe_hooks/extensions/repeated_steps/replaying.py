"""Steps of a training that are computed twice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.passes import Schedule
from msprobe_hooks.installed_extensions import extensions

if TYPE_CHECKING:
    from msprobe_hooks.extensions.repeated_steps.mindspore_steps import MindSporeStepRepeat
    from msprobe_hooks.extensions.repeated_steps.step_repeat import StepRepeat


def replay_step(
    model: Any,
    *,
    share: float | None = None,
    every: int | None = None,
    folder: str | Path = "repeats",
    calls: bool = True,
    keep_values: bool = False,
    optimizer: Any = None,
    micro_batches: int = 1,
    first_step: int = 0,
    seed: int = 0,
    stateful: Sequence[Any] = (),
    data_parallel_group: Any = None,
    on_difference: Literal["warn", "stop"] = "warn",
) -> StepRepeat | MindSporeStepRepeat:
    """Return a function that runs a training's forward and backward pass, in watched steps twice, and compares bits.

    ``loss = replay(lambda: forward_backward(batch))`` takes the place of ``loss = forward_backward(batch)``. Between
    passes, gradients, buffers and random numbers are put back, so that the training's bits are those of a single pass.
    Passes that differ are reported with the rank, the card, the step and the first call that differs.

    Args:
        model: The model, with its wrapper for data parallelism if there is one; or a cell of MindSpore.
        share: The share of steps that are watched, chosen by ``seed``; all ranks choose the same.
        every: In place of ``share``: steps whose number is a multiple of this are watched.
        folder: Where ``repeats{rank}.json`` and recordings of calls that differ are written.
        calls: Whether each call's results are compared as well; without, a watched step costs less, and a difference
            is known by the step alone.
        keep_values: Whether the results of all calls of a first pass are kept until the second has been made, so that
            wrong ones can be recorded. Without, they are if the second pass is the wrong one.
        optimizer: An optimizer of torch, or several: in watched steps, each one's next step is computed twice as well.
            None with MindSpore.
        micro_batches: How often the function is called in a step. One of them is watched.
        first_step: The number of the first step.
        seed: Chooses the steps of a ``share``, and the micro batch.
        stateful: What else the function changes: objects with ``state_dict`` and ``load_state_dict``, as a
            ``GradScaler``, and generators of torch; with MindSpore, cells and generators.
        data_parallel_group: The process group over which parameters must be equal; by default that of a
            ``DistributedDataParallel`` model. None with MindSpore.
        on_difference: ``warn`` logs what differs, ``stop`` raises DifferingStepError on each rank that sees it.

    Raises:
        ConfigError: An argument is wrong.
    """
    schedule = Schedule(share, every, micro_batches, first_step, seed)
    if on_difference not in ("warn", "stop"):
        raise ConfigError("on_difference", on_difference, "warn, stop")
    for key, value in (("calls", calls), ("keep_values", keep_values)):
        if type(value) is not bool:
            raise ConfigError(key, value, "True, False")
    if keep_values and not calls:
        raise ConfigError("keep_values", keep_values, "False with calls=False")
    mindspore = sys.modules.get("mindspore")
    if mindspore is not None and isinstance(model, mindspore.nn.Cell):
        if "mindspore" not in extensions():
            raise ConfigError("model", type(model).__name__, "a torch.nn.Module without the extension mindspore")
        from msprobe_hooks.extensions.repeated_steps.mindspore_steps import (
            MindSporeStepRepeat,
            require_options,
            unwatched_steps,
        )

        require_options(stateful, optimizer, data_parallel_group)
        return MindSporeStepRepeat(
            model,
            replace(schedule, unwatched=unwatched_steps()),
            Path(folder),
            sees_calls=calls,
            keeps_values=keep_values,
            stateful=stateful,
            on_difference=on_difference,
        )
    from torch import nn

    from msprobe_hooks.extensions.repeated_steps.step_repeat import StepRepeat
    from msprobe_hooks.extensions.repeated_steps.training_state import optimizers_of, require_stateful

    if not isinstance(model, nn.Module):
        raise ConfigError("model", type(model).__name__, "a torch.nn.Module, a mindspore.nn.Cell")
    require_stateful(stateful)
    return StepRepeat(
        model,
        schedule,
        Path(folder),
        sees_calls=calls,
        keeps_values=keep_values,
        optimizers=optimizers_of(optimizer),
        stateful=stateful,
        data_parallel_group=data_parallel_group,
        on_difference=on_difference,
    )
