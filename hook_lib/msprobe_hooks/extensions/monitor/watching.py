"""Context that monitors a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.extensions.monitor.watch.config import Plan, plan
from msprobe_hooks.extensions.monitor.watch.run_files import Logger, LogTo, loggers, numbers

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Unpack

    from msprobe_hooks.extensions.monitor.watch.config import WatchOptions
    from msprobe_hooks.extensions.monitor.watch.watcher import Watcher


@contextmanager
def watch(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any = None,
    path: str | Path = "monitor_output",
    *,
    what: Sequence[str] = ("activations", "activation_gradients", "gradients"),
    micro_batches: int = 1,
    first_step: int = 0,
    log_to: LogTo = (),
    **options: Unpack[WatchOptions],
) -> Iterator[Watcher]:
    """Watch the training that runs inside, and write its series into a new folder below ``path``.

    A step of the optimizer ends a step of the training; without one, call ``end_step()`` of the context's value. No
    error of the monitor is raised into the training.

    Args:
        model: The model, or a list of its pipeline chunks.
        optimizer: The optimizer whose steps end those of the training.
        path: The folder that gets a new folder for each run.
        what: What is monitored; docs/monitor-reference.md lists the names.
        micro_batches: How often gradients are accumulated in a step.
        first_step: The number of the first step.
        log_to: Loggers of the training that get the numbers too: ``"wandb"`` or ``"mlflow"`` for the active run, a
            run of one of these, a ``SummaryWriter`` of TensorBoard, or a list of them.
        **options: ``targets``, ``ranks``, ``statistics``, ``every``, ``format`` and others, listed in
            docs/monitor-reference.md.

    Raises:
        ConfigError: An option is wrong.
        MonitorError: The files cannot be written.
    """
    checked = plan(what, **{"steps_per_file": 100, **options})
    from msprobe_hooks.extensions.monitor.watch.torch_watcher import TorchWatcher

    make = partial(TorchWatcher, model, optimizer, Path(path), micro_batches=micro_batches, first_step=first_step)
    with _following(make, checked, log_to) as watcher:
        yield watcher


@contextmanager
def watch_mindspore(
    model: Any,
    optimizer: Any = None,
    path: str | Path = "monitor_output",
    *,
    what: Sequence[str] = ("activations", "activation_gradients", "gradients"),
    micro_batches: int = 1,
    first_step: int = 0,
    log_to: LogTo = (),
    **options: Unpack[WatchOptions],
) -> Iterator[Watcher]:
    """Watch a training of MindSpore in PyNative mode as ``watch`` does one of PyTorch.

    A call of the optimizer ends a step; without one, call ``end_step()`` of the context's value.

    Args:
        model: A cell, or a list of cells.
        optimizer: The optimizer whose calls end the steps of the training.
        path: The folder that gets a new folder for each run.
        what: What is monitored; docs/monitor-reference.md lists the names.
        micro_batches: How often gradients are accumulated in a step.
        first_step: The number of the first step.
        log_to: As in ``watch``.
        **options: As in ``watch``.

    Raises:
        ConfigError: An option is wrong.
        MonitorError: The files cannot be written.
    """
    checked = plan(what, **{"steps_per_file": 100, **options})
    from msprobe_hooks.extensions.monitor.watch.mindspore_watcher import MindSporeWatcher

    make = partial(MindSporeWatcher, model, optimizer, Path(path), micro_batches=micro_batches, first_step=first_step)
    with _following(make, checked, log_to) as watcher:
        yield watcher


@contextmanager
def _following(make: Callable[..., Watcher], checked: Plan, log_to: LogTo) -> Iterator[Watcher]:
    """Make a watcher and have it follow a plan; its rows go to the loggers as well."""
    outlets: list[Logger] = []
    watcher: Watcher = make(after_step=lambda: _log_step(watcher, outlets))
    try:
        outlets += loggers(log_to, watcher.rank)
        watcher.follow(checked)
        yield watcher
    finally:
        watcher.close()
        watcher.collection.errors.log_counts()


def _log_step(watcher: Watcher, outlets: Sequence[Logger]) -> None:
    """Pass the rows of the step that has ended to the loggers, where it was collected."""
    if not outlets:
        return
    step = watcher.step - 1
    rows = [row for row in watcher.rows if row.step == step]
    if rows:
        values = numbers(rows, watcher.plan.statistics, watcher.rank)
        for log in outlets:
            with watcher.collection.errors.kept_from("numbers for a logger"):
                log(values, step)
