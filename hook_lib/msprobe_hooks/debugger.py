"""``PrecisionDebugger`` and its companions, with msprobe's names and arguments.

Changing ``from msprobe.pytorch import ...`` to ``from msprobe_hooks import ...`` moves a training script over.
"""

from __future__ import annotations

import atexit
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.instruments.free_benchmark import config as free_benchmark
from msprobe_hooks.instruments.free_benchmark.factory import open_benchmark
from msprobe_hooks.instruments.grad_probe import config as grad_probe
from msprobe_hooks.instruments.grad_probe.factory import open_probe
from msprobe_hooks.record import Framework, open_session
from msprobe_hooks.recording.config import SPOOL_KEYS, Settings, read_common, read_config, settings

if TYPE_CHECKING:
    from torch import nn

    from msprobe_hooks.instruments.grad_probe.probe import GradientProbe
    from msprobe_hooks.recording.session import Model, Session

_log = logging.getLogger("msprobe_hooks")


class PrecisionDebugger:
    """Records the steps of a training script, between ``start`` and ``stop``, one folder per ``step``.

    There is one per process: a second construction returns the first and ignores its arguments. Arguments win over
    ``config.json``; with neither, everything is recorded into ``./dump_path`` at level L1.

    With ``spool_size``, as in ``"10GiB"``, the folder is a spool folder that ``pytest-msprobe follow`` empties:
    complete steps are moved into it; of a full one ``spool_full`` says whether ``step`` waits (``"wait"``, at most
    ``spool_wait`` seconds) or the step is dropped (``"drop"``).

    With task ``grad_probe`` it records no calls: ``monitor`` has a model's gradients written at each optimizer step,
    and ``start``, ``stop`` and ``step`` do nothing.

    With task ``free_benchmark`` each call is made once more with perturbed inputs; what changes too much is written.

    Raises ConfigError naming the key, the value and what is allowed.
    """

    _framework: ClassVar[Framework] = "pytorch"
    _instance: ClassVar[PrecisionDebugger | None] = None
    _session: Session | None = None
    _probe: GradientProbe | None = None
    _told: set[str]

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
            wanted = task or common.get("task")
            spool = {"spool_size": spool_size, "spool_full": spool_full, "spool_wait": spool_wait}
            if wanted in (grad_probe.TASK, free_benchmark.TASK):
                _refuse_spool(wanted, common | {key: value for key, value in spool.items() if value is not None})
            if wanted == grad_probe.TASK:
                instance._probe = open_probe(
                    grad_probe.probe_settings(common, dump_path=dump_path, step=step), cls._framework
                )
            elif wanted == free_benchmark.TASK:
                chosen = {"dump_path": dump_path, "level": level, "step": step, "exclude": exclude}
                instance._session = open_benchmark(
                    *free_benchmark.benchmark_settings(common, **chosen), model, cls._framework
                )
            else:
                given = {"task": task, "level": level, "step": step, "exclude": exclude, **spool}
                instance._session = open_session(_settings(config_path, dump_path, given), model, cls._framework)
            instance._told = set()
            atexit.register(instance._finish)
            cls._instance = instance
        return cls._instance

    @classmethod
    def start(
        cls,
        model: Model | None = None,
        token_range: list[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> None:
        """Record from here on, where this step and rank are wanted; ``rank_id`` names the rank.

        All that runs is recorded, whatever ``token_range`` and ``scheduled_tokens`` say, of which a warning tells.

        Raises ConfigError where the level needs a model and there is none, RecordingError where a former run left a
        dump; both the first time, before anything has run. A full disk, and whatever else fails later, ends the
        recording and not the training.
        """
        instance = cls._made()
        if rank_id is not None:
            _check_number("rank_id", rank_id)
        for key, value in (("token_range", token_range), ("scheduled_tokens", scheduled_tokens)):
            if value is not None:
                instance._tell_once(f"{key} is not followed: all that runs between start() and stop() is recorded")
        if instance._session is not None:
            instance._session.start(model, rank_id)

    @classmethod
    def stop(cls) -> None:
        """Pause; the files on disk are complete, tensors included. ``start`` goes on in the same step.

        What ran until now still gets its backward records, which are in the files after ``step``.
        """
        session = cls._made()._session
        if session is not None:
            session.stop()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """Say that what is to be recorded, forward and backward, has been called: the same as ``stop``."""
        cls.stop()

    @classmethod
    def step(cls) -> None:
        """End a step, after its backward pass: its files are finished, and call numbers restart.

        The next ``start`` writes into the next folder.
        """
        session = cls._made()._session
        if session is not None:
            session.step()

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Say which number the step that runs now has. Raises ConfigError for a number below 0."""
        _check_number("step", step)
        probe = cls._made()._probe
        if probe is not None:
            probe.begin_at(step)
        else:
            cls._of_process().recorder.step = step

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by name, and its gradients when they arrive. Does nothing but at level debug."""
        instance = cls._made()
        if instance._probe is not None:
            instance._tell_once("save() records nothing with task grad_probe")
            return
        session = cls._of_process()
        level = session.recorder.settings.level
        if level != "debug":
            instance._tell_once(f"save() records nothing at level {level}, only at level debug")
            return
        # At this level there is nothing else to switch on, so saving does not wait for start().
        session.start()
        session.save(variable, name, save_backward)

    @classmethod
    def monitor(cls, model: Any, optimizer: Any = None) -> None:
        """Write gradients at each optimizer step with task ``grad_probe``; else only say so.

        PyTorch's are those of ``model``; ``optimizer`` names the one whose steps count where it holds copies of the
        parameters, not themselves. MindSpore's optimizer is given in place of the model. Raises ConfigError for
        anything else, or a second model.
        """
        instance = cls._made()
        if instance._probe is not None:
            instance._probe.monitor(model, optimizer)
        else:
            instance._tell_once("monitor() does nothing but with task grad_probe: gradients are not monitored")

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record ``module.api`` too, as ``{prefix}.{api}``. Raises ConfigError where there is no such function."""
        cls._of_process().register_custom_api(module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo ``register_custom_api``."""
        cls._of_process().restore_custom_api(module, api)

    @classmethod
    def _of_process(cls) -> Session:
        session = cls._made()._session
        if session is None:
            raise RecordingError("task grad_probe records no calls: use task statistics, tensor or structure for that")
        return session

    @classmethod
    def _made(cls) -> PrecisionDebugger:
        if cls._instance is None:
            raise RecordingError("PrecisionDebugger instance is not created: call PrecisionDebugger(...) first")
        return cls._instance

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)

    def _finish(self) -> None:
        atexit.unregister(self._finish)
        summary = self._close()
        if summary:
            # A program may have closed it.
            with suppress(Exception):
                sys.stderr.write(f"msprobe_hooks: {summary}\n")
            type(self)._instance = None

    def _close(self) -> str:
        """End what runs; return what it says of itself, nothing in a forked child."""
        if self._probe is not None:
            return self._probe.close()
        assert self._session is not None
        summary = self._session.close()
        return "" if self._session.recorder.is_abandoned else str(summary)


def _settings(config_path: str | Path | None, dump_path: str | Path | None, given: dict[str, Any]) -> Settings:
    if config_path is not None:
        return read_config(config_path, dump_path=dump_path, **given)
    named = {key: value for key, value in given.items() if value is not None}
    return settings(Settings().dump_path if dump_path is None else dump_path, **named)


def _refuse_spool(task: str, given: dict[str, Any]) -> None:
    for key in SPOOL_KEYS:
        if given.get(key) is not None:
            raise ConfigError(key, given[key], f"no such key with task {task}")


def _check_number(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(key, value, "an integer from 0")


def module_dump(module: nn.Module, dump_name: str) -> None:
    """Record only this module's calls, as ``Module.{dump_name}.{Class}``, until ``module_dump_end``.

    Raises ConfigError where the level records modules anyway.
    """
    PrecisionDebugger._of_process().dump_module(module, dump_name)


def module_dump_end() -> None:
    """Record API calls again."""
    PrecisionDebugger._of_process().end_module_dump()


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Make a run repeatable: seed Python, numpy and torch; ``mode`` asks for deterministic algorithms.

    ``rm_dropout`` lets every dropout keep all elements. Raises ConfigError for a wrong argument.
    """
    from msprobe_hooks.torch.seeds import seed_everything

    seed_everything(seed, mode, rm_dropout)
