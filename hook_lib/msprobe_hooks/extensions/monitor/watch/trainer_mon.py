"""``TrainerMon`` for PyTorch and MindSpore, with msprobe's names and arguments, of 1.2.2 and of 26.x.

Below it are the monitor of both frameworks and the switch that a configuration file is while a training runs.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import ConfigError, MonitorError, unknown_name
from msprobe_hooks.extensions.monitor.series.anomalies import AnomalyFile, Pipeline
from msprobe_hooks.extensions.monitor.series.paths import tag
from msprobe_hooks.extensions.monitor.watch.config import Plan, checked_statistics, read_config, whole_number
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular

if TYPE_CHECKING:
    from msprobe_hooks.extensions.monitor.series.anomalies import Alert
    from msprobe_hooks.extensions.monitor.series.writer import Row
    from msprobe_hooks.extensions.monitor.watch.run_files import RunFiles
    from msprobe_hooks.extensions.monitor.watch.torch_watcher import TorchWatcher
    from msprobe_hooks.extensions.monitor.watch.watcher import Watcher

_log = logging.getLogger("msprobe_hooks")

# In place of the time when a file was written.
_GONE = -1


class DynamicSwitch:
    """Looks at a configuration file when a step has ended; it counts while its ``dynamic_on`` is true.

    ``read`` returns the plan of a file and warnings, or raises ConfigError.
    """

    def __init__(self, path: Path, read: Callable[[Path], tuple[Plan, list[str]]]) -> None:
        self._path = path
        self._read = read
        self._seen: int | None = None

    def changed(self) -> Plan | None:
        """Return the plan of a file that was written since the last look and is on.

        None for any other; what is wrong with one, as that it is gone, is logged once.
        """
        try:
            written = self._path.stat().st_mtime_ns
        except OSError:
            written = _GONE
        if written == self._seen:
            return None
        self._seen = written
        try:
            plan, warnings = self._read(self._path)
        except ConfigError as error:
            _log.error("%s is ignored, the monitor goes on as before: %s", self._path, error)
            return None
        for warning in warnings if plan.is_dynamic else ():
            _log.warning("%s: %s", self._path, warning)
        return plan if plan.is_dynamic else None

    def turn_off(self) -> None:
        """Write ``dynamic_on`` false into the file, the rest of which stays."""
        try:
            content = decode_json(read_regular(self._path)) | {"dynamic_on": False}
            written = self._path.with_name(f"{self._path.name}.new")
            written.write_text(json.dumps(content, indent=2))
            written.chmod(self._path.stat().st_mode)
            written.replace(self._path)
        except (OSError, JsonError, TypeError) as error:
            _log.error("%s: dynamic_on cannot be set to false: %s", self._path, error)


OUTPUT_VARIABLE = "MONITOR_OUTPUT_DIR"
DYNAMIC_VARIABLE = "DYNAMIC_MONITOR"

#: What `generate_wgrad_metrics` and its like return: statistics by tag.
Metrics = dict[str, dict[str, float]]

_ADHOC_STATISTICS = ("norm", "max", "min", "mean")


class Monitor(ABC):
    """Monitors the training of one model with one optimizer, as a configuration file says, by a framework's watcher.

    Its arguments are those of `TrainerMon`. Nothing is raised into the training later.
    """

    def __init__(
        self,
        config_file_path: str | Path,
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: object = None,
    ) -> None:
        self._path = config_file_path
        self._base = Path(os.environ.get(OUTPUT_VARIABLE) or "./monitor_output")
        self._has_main_grad = params_have_main_grad
        self._plan, warnings = self.read(config_file_path)
        for warning in warnings:
            _log.warning("%s: %s", config_file_path, warning)
        is_dynamic = os.environ.get(DYNAMIC_VARIABLE, "").lower() == "true"
        self._switch = DynamicSwitch(Path(config_file_path), self.read) if is_dynamic else None
        self._watcher: Watcher | None = None
        self._pipeline_group = process_group
        self._anomalies: AnomalyFile | None = None

    @abstractmethod
    def watcher(self, model: Any, optimizer: Any, **options: Any) -> Watcher:
        """Return what watches a model; ``options`` are those of a Watcher."""

    @abstractmethod
    def rank_in(self, group: Any) -> int:
        """Return this process's rank in a group."""

    @abstractmethod
    def ranks_of(self, group: Any) -> list[int]:
        """Return the ranks in the whole program of a group's processes, this one's among them."""

    def read(self, path: str | Path) -> tuple[Plan, list[str]]:
        """Return the plan of a configuration, and warnings. Raises ConfigError."""
        return read_config(path)

    @property
    def ops(self) -> list[str]:
        """The statistics that are computed; others can be set, from the next step on in a folder of their own."""
        return list(self._plan.statistics)

    @ops.setter
    def ops(self, names: list[str]) -> None:
        self._plan = replace(self._plan, statistics=checked_statistics("ops", names))
        if self._watcher is not None and not self._watcher.has_begun:
            self._follow_ops()

    def set_monitor(self, model: Any, *args: Any, **kwargs: Any) -> None:
        """Begin to monitor a model, or a list of virtual pipeline chunks.

        Args:
            model: The model, or the list of its chunks.
            *args: As in msprobe 1.2.2: ``grad_acc_steps=1, optimizer=None, tp_group=None, dp_group=None,
                start_iteration=0``; or as in 26.x, with the optimizer before ``grad_acc_steps``. A number first means
                1.2.2.
            **kwargs: The same arguments by name.

        Raises:
            ConfigError: An argument is wrong, or the optimizer steps none of the model's parameters.
            MonitorError: The folder cannot be written.
        """
        settings = _arguments(args, kwargs)
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = watcher = self.watcher(
            model,
            settings["optimizer"],
            base=self._base,
            micro_batches=settings["grad_acc_steps"],
            has_main_grad=self._has_main_grad,
            is_left_out=is_replicated_elsewhere(self.rank_in, settings["tp_group"], settings["dp_group"]),
            first_step=settings["start_iteration"],
            after_step=self._after_step,
            when_alerted=self._keep_alerts,
        )
        # When the program ends, or nothing holds model and optimizer any more.
        weakref.finalize(watcher, _finish, watcher.files)
        if self._switch is None:
            watcher.follow(self._plan)
            self._open_anomalies()

    monitor_gnorm_with_ad = set_monitor

    def generate_wgrad_metrics(self) -> tuple[Metrics, Metrics]:
        """Return the gradients' statistics as they are now, and those before reduction in this step."""
        watcher = self._watcher
        if watcher is None or not watcher.plan.wants("gradients"):
            return {}, {}
        reduced = watcher.reduced_gradients()
        return self._metrics(reduced, "post_grad"), self._metrics(watcher.latest("grad_unreduced"), "acc_grad")

    def generate_xy_metrics(self) -> tuple[Metrics, Metrics]:
        """Return the statistics of activations and of their gradients of this step, or else of the latest one."""
        if self._watcher is None:
            return {}, {}
        metrics = [self._metrics(self._watcher.latest(task), task) for task in ("actv", "actv_grad")]
        return metrics[0], metrics[1]

    def adhoc_check(
        self, target_tensor: Any, module_name: str, tensor_name: str, rank_list: list[int], ops_list: list[str]
    ) -> None:
        """Write a tensor's statistics as ``<module_name>.<tensor_name>`` of the task ``other`` of this step.

        Args:
            target_tensor: The tensor, of any shape.
            module_name: The first part of its name.
            tensor_name: The second part of its name.
            rank_list: The ranks that write, all where it is empty.
            ops_list: The statistics, some of `ops`.

        Raises:
            ConfigError: A statistic is not among `ops`.
        """
        for name in ops_list:
            if name not in _ADHOC_STATISTICS or name not in self.ops:
                allowed = [one for one in _ADHOC_STATISTICS if one in self.ops]
                raise ConfigError("ops_list", name, f"{', '.join(allowed)} (the statistics of ops)", known=allowed)
        if self._watcher is not None:
            self._watcher.measure_once(f"{module_name}.{tensor_name}", target_tensor, rank_list)

    def _metrics(self, rows: list[Row], task: str) -> Metrics:
        assert self._watcher is not None
        rank, statistics = self._watcher.rank, self._watcher.plan.statistics
        return {
            tag(row.vpp_stage, row.name, row.micro_step, rank, task): dict(zip(statistics, row.values, strict=True))
            for row in rows
        }

    def _follow_ops(self) -> None:
        watcher = self._watcher
        if watcher is not None and watcher.plan.what and watcher.plan.statistics != self._plan.statistics:
            plan = replace(watcher.plan, statistics=self._plan.statistics, appends_to=None)
            watcher.follow(plan, collected=watcher.collected)

    def _after_step(self) -> None:
        self._follow_ops()
        watcher, switch = self._watcher, self._switch
        if watcher is None or switch is None:
            return
        plan = switch.changed()
        if plan is not None:
            try:
                watcher.follow(plan)
                self._plan = plan
                self._open_anomalies()
                _log.warning("%s applies from step %d on", self._path, watcher.step)
            except (ConfigError, MonitorError) as error:
                _log.error("%s is ignored, the monitor goes on as before: %s", self._path, error)
        elif watcher.is_finished and watcher.plan.what:
            watcher.follow(Plan(format="api"))
            if not watcher.rank:
                switch.turn_off()

    def _open_anomalies(self) -> None:
        """Begin the file of anomalies, once, where it is wanted of this rank."""
        watcher = self._watcher
        if watcher is None or self._anomalies or not self._plan.alerts.dump or not self._plan.is_for(watcher.rank):
            return
        group, rank = self._pipeline_group, watcher.rank or 0
        pipeline = None if group is None else Pipeline((ranks := self.ranks_of(group)).index(rank), ranks)
        self._anomalies = AnomalyFile(self._base / "anomaly_detected", rank, pipeline)

    def _keep_alerts(self, alerts: Sequence[Alert]) -> None:
        if self._anomalies is not None and self._plan.alerts.dump:
            self._anomalies.add(alerts)


def _finish(files: RunFiles) -> None:
    try:
        files.close()
    except MonitorError as error:
        _log.error("the last steps are lost: %s", error)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ["grad_acc_steps", "optimizer", "tp_group", "dp_group", "start_iteration"]
    if args and not isinstance(args[0], int) and (args[0] is not None or (len(args) > 1 and isinstance(args[1], int))):
        names[:2] = ["optimizer", "grad_acc_steps"]
    if len(args) > len(names):
        problem = (
            f"set_monitor() takes at most {len(names) + 1} arguments, not {len(args) + 1}: model, {', '.join(names)}"
        )
        raise ConfigError("set_monitor", f"{len(args) + 1} arguments", "model, " + ", ".join(names), problem=problem)
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise unknown_name("set_monitor() has no argument", name, value, ["model", *names])
        if name in values:
            problem = f"set_monitor() got the argument {name!r} twice"
            raise ConfigError("set_monitor", name, "each argument once", problem=problem)
    values = {"grad_acc_steps": 1, "optimizer": None, "tp_group": None, "dp_group": None, "start_iteration": 0} | values
    values |= kwargs
    for name, least in (("grad_acc_steps", 1), ("start_iteration", 0)):
        whole_number(least)(name, values[name])
    if values["optimizer"] is None:
        problem = "set_monitor() needs optimizer=: the optimizer whose steps end those of the training"
        raise ConfigError("optimizer", None, "the optimizer whose steps end those of the training", problem=problem)
    return values


class TrainerMon(Monitor):
    """Monitors the training of one model of PyTorch with one optimizer, as a configuration file says.

    Files are written below ``MONITOR_OUTPUT_DIR``, or ``./monitor_output``. Nothing is raised into the training later.

    Args:
        config_file_path: The path of msprobe's configuration of its monitor.
        process_group: The group of the pipeline's stages, which anomalies report.
        params_have_main_grad: Whether gradients are read from ``main_grad``, where a parameter has one.
        opt_ty: Ignored; msprobe has it.

    Raises:
        ConfigError: A setting is wrong; the text names the key, the value and what is allowed.
    """

    def watcher(self, model: Any, optimizer: Any, **options: Any) -> TorchWatcher:
        """Return what watches modules."""
        from msprobe_hooks.extensions.monitor.watch.torch_watcher import TorchWatcher

        return TorchWatcher(model, optimizer, **options)

    def rank_in(self, group: Any) -> int:
        """Return this process's rank in a group of ``torch.distributed``."""
        import torch.distributed as dist

        return dist.get_rank(group)

    def ranks_of(self, group: Any) -> list[int]:
        """Return the ranks in the whole program of a group's processes."""
        import torch.distributed as dist

        return dist.get_process_group_ranks(group)


def is_replicated_elsewhere(
    rank_in: Callable[[Any], int], tensor_parallel: Any, data_parallel: Any
) -> Callable[[Any], bool]:
    """Return whether another rank reports a parameter's gradients, as a function; ``rank_in`` is the rank in a group.

    Of a data-parallel group that is rank 0; of a tensor-parallel group it is for parameters that are not split, which
    have no ``tensor_model_parallel``. A group that is None leaves nothing out.
    """
    is_replica = data_parallel is not None and rank_in(data_parallel) != 0
    is_behind = tensor_parallel is not None and rank_in(tensor_parallel) != 0
    return lambda parameter: is_replica or (is_behind and not getattr(parameter, "tensor_model_parallel", False))
