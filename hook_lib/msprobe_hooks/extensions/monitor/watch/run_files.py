"""Destinations of the numbers of a monitored run: the files of its plan, and the loggers of the training."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.series.blocks import StepTime, append_step_time
from msprobe_hooks.extensions.monitor.series.paths import earlier_folder, run_folder, tag, window
from msprobe_hooks.extensions.monitor.series.writer import Row, SeriesWriter, open_writer
from msprobe_hooks.extensions.monitor.watch.config import Plan

_log = logging.getLogger("msprobe_hooks")

#: Takes the numbers of a step by their names.
Logger: TypeAlias = Callable[[dict[str, float], int], None]


@runtime_checkable
class TensorBoardWriter(Protocol):
    """A ``SummaryWriter`` of TensorBoard."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None, /) -> Any:
        """Add a number of a step."""


@runtime_checkable
class WandbRun(Protocol):
    """A run of Weights & Biases."""

    def define_metric(self, name: str, step_metric: str | None = None) -> Any:
        """Name the axis over which numbers are drawn."""

    def log(self, data: dict[str, Any], /) -> Any:
        """Add the numbers of a step."""


@runtime_checkable
class MlflowRun(Protocol):
    """A run of MLflow, which is known by its ``info.run_id``."""

    @property
    def info(self) -> Any:
        """Facts of the run, its ``run_id`` among them."""


# None is what a rank has that is not to log.
_Run: TypeAlias = "Literal['wandb', 'mlflow'] | TensorBoardWriter | WandbRun | MlflowRun | None"
#: A logger of the training, or several.
LogTo: TypeAlias = "_Run | Sequence[_Run]"

#: What the names of all numbers begin with, apart from those that the training logs itself.
PREFIX: Final = "msprobe"

_STARTS = {
    "wandb": "a logger with an active run: call wandb.init() before watch",
    "mlflow": "a logger with an active run: call mlflow.start_run() before watch",
}
_ALLOWED = "'wandb', 'mlflow', a SummaryWriter, a run of W&B or MLflow, or a list of these"
# MLflow takes no other characters in a name, and no more numbers at once.
_NOT_IN_MLFLOW = re.compile(r"[^\w\-. :/]")
_MOST_IN_MLFLOW = 1000


class RunFiles:
    """The files of one rank of a run, below a base; ``folder`` is where they are written, None where there are none."""

    def __init__(self, base: Path, rank: int | None) -> None:
        self.folder: Path | None = None
        self._base = base
        self._rank = rank
        self._plan = Plan(format="api")
        self._writer: SeriesWriter | None = None

    def follow(self, plan: Plan) -> None:
        """Open the files of a plan in a new folder or one it names, unless those that are open suit it.

        Raises MonitorError where the folder cannot be written, or is not there.
        """
        if self._writer is None or _options(plan) != _options(self._plan):
            folder = self._folder_of(plan)
            self.folder = None
            self.close()
            if plan.format != "api":
                self._writer = open_writer(
                    plan.format, folder, plan.statistics, ndigits=plan.ndigits, steps_per_file=plan.steps_per_file
                )
                self.folder = folder
        self._plan = plan

    def _folder_of(self, plan: Plan) -> Path:
        if plan.appends_to is None:
            return run_folder(self._base, self._rank)
        return earlier_folder(self._base, self._rank, *plan.appends_to)

    def add(self, step: int, rows: Sequence[Row]) -> None:
        """Take the rows of a step that ends now; files whose last step this is are flushed. Raises MonitorError."""
        if self._writer is not None:
            # Events have the time of each; here it comes first, so that there is one for each step that has rows.
            if self.folder is not None and self._plan.format != "tensorboard":
                append_step_time(self.folder, StepTime(step, time.time()))
            self._writer.add(rows)
            length = self._plan.steps_per_file
            if window(step, length) != window(step + self._plan.every, length):
                self._writer.flush()

    def close(self) -> None:
        """Finish the files. Raises MonitorError where they cannot be written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _options(plan: Plan) -> tuple[object, ...]:
    return plan.format, plan.statistics, plan.ndigits, plan.steps_per_file, plan.appends_to


def numbers(rows: Sequence[Row], statistics: Sequence[str], rank: int | None) -> dict[str, float]:
    """Return the statistics of rows, named ``msprobe/<vpp stage>:<name>[:<micro step>]/rank<rank>/<task>_<statistic>``.

    The rank of the only process is 0.
    """
    return {
        f"{PREFIX}/{tag(row.vpp_stage, row.name, row.micro_step, rank or 0, row.task)}_{statistic}": value
        for row in rows
        for statistic, value in zip(statistics, row.values, strict=True)
    }


def loggers(log_to: LogTo, rank: int | None) -> list[Logger]:
    """Return what gives the numbers of a step to each logger, by the logger's own API.

    Of a name the active run is taken. A rank other than 0 may have no run, or None for one: a warning reports that its
    numbers are not logged. Raises ConfigError for what is no logger, and for a name that is not installed or has no
    active run.
    """
    choices = log_to if isinstance(log_to, (list, tuple)) else [log_to]
    runs = [(_active_run(one) if isinstance(one, str) else one) for one in choices]
    for one, run in zip(choices, runs, strict=True):
        if run is None and not rank:
            raise ConfigError("log_to", one, _STARTS.get(str(one), _ALLOWED))
        if run is None:
            _log.warning("rank %d has no run of a logger: its numbers are not logged", rank)
    return [_logger(run) for run in runs if run is not None]


def _active_run(name: str) -> object:
    if name not in _STARTS:
        raise ConfigError("log_to", name, _ALLOWED, known=tuple(_STARTS))
    try:
        module = import_module(name)
    except ImportError:
        raise ConfigError("log_to", name, f"a logger that is installed: pip install {name}") from None
    return module.run if name == "wandb" else module.active_run()


def _logger(run: object) -> Logger:
    if isinstance(run, TensorBoardWriter):
        return _of_tensorboard(run)
    if isinstance(run, WandbRun):
        return _of_wandb(run)
    if isinstance(run, MlflowRun) and hasattr(run.info, "run_id"):
        return _of_mlflow(run.info.run_id)
    raise ConfigError("log_to", type(run).__name__, _ALLOWED)


def _of_tensorboard(writer: TensorBoardWriter) -> Logger:
    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log


def _of_wandb(run: WandbRun) -> Logger:
    # Its own steps count calls of log, the training's too.
    step_name = f"{PREFIX}/step"
    run.define_metric(f"{PREFIX}/*", step_metric=step_name)

    def log(values: dict[str, float], step: int) -> None:
        run.log({**values, step_name: step})

    return log


def _of_mlflow(run_id: str) -> Logger:
    log_metrics = import_module("mlflow").log_metrics

    def log(values: dict[str, float], step: int) -> None:
        entries = iter((_NOT_IN_MLFLOW.sub("_", name), value) for name, value in values.items())
        while batch := dict(islice(entries, _MOST_IN_MLFLOW)):
            log_metrics(batch, step=step, run_id=run_id)

    return log
