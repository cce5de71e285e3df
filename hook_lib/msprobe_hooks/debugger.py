"""``PrecisionDebugger`` and its companions, with msprobe's names and arguments.

Changing ``from msprobe.pytorch import ...`` to ``from msprobe_hooks import ...`` moves a training script over.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msprobe_hooks.debugger_config import DebuggerConfig, DebuggerService
from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.installed_extensions import first, implementations
from msprobe_hooks.messages import naming_keywords
from msprobe_hooks.record import Framework, open_session
from msprobe_hooks.recording.config import SPOOL_KEYS, Settings, read_common, read_config, settings
from msprobe_hooks.recording.summary import write_line

if TYPE_CHECKING:
    from torch import nn

    from msprobe_hooks.extension_points import Feeding, Probe, Switch
    from msprobe_hooks.recording.session import Model, Session

_log = logging.getLogger("msprobe_hooks")


class PrecisionDebugger:
    """Records the steps of a training script, between ``start`` and ``stop``, one folder per ``step``.

    There is one per process: a second construction returns the first and ignores its arguments. Arguments take
    precedence over ``config.json``; with neither, everything is recorded into ``./dump_path`` at level L1.

    With task ``grad_probe`` no calls are recorded: ``monitor`` writes a model's gradients at each optimizer step, and
    ``start``, ``stop`` and ``step`` do nothing. With task ``free_benchmark`` each call is repeated with perturbed
    inputs, and results that change too much are written.

    Programs written for msprobe read ``config`` and ``service``. One that sets ``config.dump_path`` before each
    ``start`` has a folder for each of its stages.

    Args:
        config_path: The path of msprobe's ``config.json``.
        task: ``statistics``, ``tensor``, ``structure``, ``overflow_check``, ``nan_check``, ``free_benchmark`` or
            ``grad_probe``.
        dump_path: The folder of the recording.
        level: ``L0``, ``L1``, ``L2``, ``mix``, ``debug`` or ``aten``.
        model: The model, or a list of its parts; levels L0 and mix need it here or in ``start``.
        step: The steps to record, as in ``[0, "3-5"]``.
        exclude: Names of APIs that are not recorded, ``*`` for anything.
        spool_size: The most bytes of the folder, as in ``"10GiB"``: it becomes a spool folder, into which complete
            steps are moved, and which ``pytest-msprobe follow`` empties.
        spool_full: What ``step`` does where the spool folder is full: ``"wait"``, or ``"drop"`` the step.
        spool_wait: How many seconds it waits at most.

    Raises:
        ConfigError: A setting is wrong; the text names the key, the value and what is allowed.
    """

    _framework: ClassVar[Framework] = "pytorch"
    _instance: ClassVar[PrecisionDebugger | None] = None
    _session: Session | None = None
    _probe: Probe | None = None
    _load: Feeding | None = None
    _switch: Switch | None = None
    _warned: set[str]
    #: What is recorded and where, under msprobe's names.
    config: DebuggerConfig
    #: The state of the recording, under msprobe's names.
    service: DebuggerService

    @naming_keywords
    def __new__(  # noqa: PYI034 - typing.Self is not in Python 3.10
        cls,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        model: Model | None = None,
        step: list[int | str] | None = None,
        *,
        exclude: list[str] | None = None,
        spool_size: str | int | None = None,
        spool_full: str | None = None,
        spool_wait: float | None = None,
    ) -> PrecisionDebugger:
        """Return the process's debugger, made on the first call."""
        if cls._instance is None:
            instance = super().__new__(cls)
            common = {} if config_path is None else read_common(config_path)
            task_name = task or common.get("task")
            arguments: dict[str, Any] = {
                "dump_path": dump_path,
                "task": task,
                "level": level,
                "step": step,
                "exclude": exclude,
            }
            arguments |= {"spool_size": spool_size, "spool_full": spool_full, "spool_wait": spool_wait}
            if any(task_name in tasks for tasks in implementations("TASKS")):
                _refuse_keys_of_recordings(task_name, common, arguments)
                instance._probe = first("open_probe", task_name, common, arguments, cls._framework)
                instance._session = first("open_task", task_name, common, arguments, model, cls._framework)
            else:
                instance._session = open_session(_settings(config_path, arguments), model, cls._framework)
                instance._load = _feeding(common.get("load"), instance._session, cls._framework)
            instance._warned = set()
            instance._switch = first("open_switch", config_path, common)
            if instance._switch is None and common.get("dump_enable") is not None:
                raise ConfigError("dump_enable", common["dump_enable"], "not supported by any installed extension")
            recording = instance._probe or instance._session
            assert recording is not None
            instance.config = DebuggerConfig(recording)
            instance.service = DebuggerService(instance.config, instance._session)
            atexit.register(instance._finish)
            cls._instance = instance
        return cls._instance

    @property
    def dump_path(self) -> str:
        """The folder of the recording."""
        return self.config.dump_path

    @classmethod
    def start(
        cls,
        model: Model | None = None,
        token_range: list[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> None:
        """Record from here on, where this step and rank are wanted.

        A full disk, or any later failure, ends the recording and not the training.

        Args:
            model: The model, or a list of its parts, where the constructor did not get it.
            token_range: Ignored, with a warning: everything that runs is recorded.
            rank_id: The rank, by default that of the process.
            scheduled_tokens: How many tokens of each request the next forward pass has, in the order of its rows;
                kept next to the dump for comparisons with a training (``tokens.jsonl``).

        Raises:
            ConfigError: The level needs a model and there is none.
            RecordingError: The folder has the dump of an earlier run; so may one that ``config.dump_path`` was set to.
        """
        instance = cls._made()
        if rank_id is not None:
            _check_number("rank_id", rank_id)
        if token_range is not None:
            instance._warn_once("token_range is ignored: everything between start() and stop() is recorded")
        if instance._probe is not None:
            instance._warn_once("start() and stop() do nothing with task grad_probe; call monitor() before training")
        instance._maybe_reload_config()
        if instance._switch is not None and not instance._switch.is_on:
            return
        if instance._load is not None:
            instance._load.start(model)
            if not instance._load.is_recorded:
                return
        if instance._session is not None:
            instance._session.start(model, rank_id)
            if scheduled_tokens is not None:
                instance._session.note_tokens([*scheduled_tokens], [*scheduled_tokens.values()])

    @classmethod
    def stop(cls) -> None:
        """Pause; the files on disk are complete, tensors included. ``start`` goes on in the same step.

        What ran until now still gets its backward records, which are in the files after ``step``.
        """
        instance = cls._made()
        instance._pause()
        instance._maybe_reload_config()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """Stop recording after forward and backward: the same as ``stop``."""
        cls.stop()

    @classmethod
    def step(cls, dump: bool = True) -> None:
        """End a step, after its backward pass: its files are finished, and call numbers restart.

        The next ``start`` writes into the next folder.

        Args:
            dump: False is ignored, with a warning: the step is written and counted as any other.
        """
        instance = cls._made()
        if not dump:
            instance._warn_once("step(dump=False) is ignored: the step is written and counted as any other")
        session = instance._session
        if session is not None:
            session.step()
        instance._maybe_reload_config()

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Set the number of the current step. Raises ConfigError for a number below 0."""
        _check_number("step", step)
        probe = cls._made()._probe
        if probe is not None:
            probe.begin_at(step)
        else:
            cls._of_process().recorder.step = step

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by name, and its gradients when they arrive, at level debug; at other levels only warn.

        Args:
            variable: A tensor, or a nesting of tensors and plain values.
            name: The name of its records.
            save_backward: Whether its gradients are recorded.
        """
        instance = cls._made()
        if instance._probe is not None:
            instance._warn_once("save() records nothing with task grad_probe")
            return
        session = cls._of_process()
        level = session.recorder.settings.level
        if level != "debug":
            instance._warn_once(f"save() records nothing at level {level}, only at level debug")
            return
        # At this level there is nothing else to switch on, so saving does not wait for start().
        if instance._switch is None or instance._switch.is_on:
            session.start()
            session.save(variable, name, save_backward)

    @classmethod
    def monitor(cls, model: Any, optimizer: Any = None) -> None:
        """Write gradients at each optimizer step with task ``grad_probe``; with other tasks only warn.

        Args:
            model: The model with PyTorch; the optimizer with MindSpore.
            optimizer: The optimizer whose steps count where it holds copies of the parameters, not the parameters.

        Raises:
            ConfigError: An argument is of another type, or the model is a second one.
        """
        instance = cls._made()
        if instance._probe is not None:
            instance._probe.monitor(model, optimizer)
        else:
            instance._warn_once("monitor() does nothing: it needs task grad_probe")

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record ``module.api`` too, as ``{prefix}.{api}``.

        Args:
            module: A module or a class.
            api: The name of its function.
            api_prefix: The first part of the records' names, by default the module's name.

        Raises:
            ConfigError: There is no such function, or it cannot be replaced.
        """
        cls._of_process().register_custom_api(module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo ``register_custom_api`` for the same module and function."""
        cls._of_process().restore_custom_api(module, api)

    @classmethod
    def _of_process(cls) -> Session:
        session = cls._made()._session
        if session is None:
            raise RecordingError("task grad_probe records no calls; choose task statistics, tensor or structure")
        return session

    @classmethod
    def _made(cls) -> PrecisionDebugger:
        if cls._instance is None:
            raise RecordingError("there is no PrecisionDebugger; call PrecisionDebugger(...) first")
        return cls._instance

    def _pause(self) -> None:
        if self._load is not None:
            self._load.stop()
        if self._session is not None:
            self._session.stop()

    def _maybe_reload_config(self, force: bool = False) -> bool:
        """Follow the switch in ``config.json``, and return whether it was changed; vllm-ascend calls this."""
        if self._switch is None or not self._switch.read_again():
            return False
        if not self._switch.is_on:
            self._pause()
        return True

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _finish(self) -> None:
        atexit.unregister(self._finish)
        summary = self._close()
        if summary:
            write_line(summary)
            type(self)._instance = None

    def _close(self) -> str:
        """End the recording and return its summary, empty in a forked child."""
        if self._probe is not None:
            return self._probe.close()
        assert self._session is not None
        summary = self._session.close()
        if self._session.recorder.is_abandoned:
            return ""
        if self._load is None:
            return str(summary)
        return f"{self._load.close()}; {summary}" if self._load.is_recorded else self._load.close()


def _settings(config_path: str | Path | None, arguments: Mapping[str, Any]) -> Settings:
    if config_path is not None:
        return read_config(config_path, **arguments)
    named = {key: value for key, value in arguments.items() if value is not None}
    return settings(named.pop("dump_path", Settings().dump_path), **named)


def _refuse_keys_of_recordings(task: str | None, common: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    options = {**common, **{key: value for key, value in arguments.items() if value is not None}}
    for key in SPOOL_KEYS:
        if options.get(key) is not None:
            raise ConfigError(key, options[key], f"not supported with task {task}")
    if options.get("load"):
        raise ConfigError("load", options["load"], f"not supported with task {task}")


def _feeding(load: Any, session: Session, framework: Framework) -> Feeding | None:
    if not load:
        return None
    feeding: Feeding | None = first("open_feeding", load, session, framework)
    if feeding is None:
        raise ConfigError("load", load, "not supported by any installed extension")
    return feeding


def _check_number(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(key, value, "an integer >= 0")


def module_dump(module: nn.Module, dump_name: str) -> None:
    """Record only this module's calls, as ``Module.{dump_name}.{Class}``, until ``module_dump_end``.

    Args:
        module: The module, of which no hooks of this recording are on.
        dump_name: The name in the records.

    Raises:
        ConfigError: The level records modules already, or ``module`` is not a ``torch.nn.Module``.
    """
    PrecisionDebugger._of_process().dump_module(module, dump_name)


def module_dump_end() -> None:
    """Record API calls again, after ``module_dump``."""
    PrecisionDebugger._of_process().end_module_dump()


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Make a run repeatable: seed Python, numpy and torch.

    Args:
        seed: An integer from 0 to 4294967295.
        mode: Whether to use deterministic algorithms.
        rm_dropout: Whether every dropout keeps all elements.

    Raises:
        ConfigError: An argument is wrong.
    """
    from msprobe_hooks.torch.generators import seed_everything

    seed_everything(seed, mode, rm_dropout)
