"""``PrecisionDebugger`` and its companions, with msprobe's names and arguments.

Changing ``from msprobe.pytorch import ...`` to ``from msprobe_hooks import ...`` moves a training script over.
"""

from __future__ import annotations

import atexit
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.record import Framework, open_session
from msprobe_hooks.recording.config import Settings, read_config, settings

if TYPE_CHECKING:
    from torch import nn

    from msprobe_hooks.recording.session import Model, Session

_log = logging.getLogger("msprobe_hooks")


class PrecisionDebugger:
    """Records the steps of a training script, between ``start`` and ``stop``, one folder per ``step``.

    There is one per process: a second construction returns the first and ignores its arguments. Arguments win over
    ``config.json``; with neither, everything is recorded into ``./dump_path`` at level L1.

    Raises ConfigError naming the key, the value and what is allowed.
    """

    _framework: ClassVar[Framework] = "pytorch"
    _instance: ClassVar[PrecisionDebugger | None] = None
    _session: Session
    _settings: Settings

    def __new__(  # noqa: PYI034 - typing.Self is not in Python 3.10
        cls,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        model: Model | None = None,
        step: list[int | str] | None = None,
    ) -> PrecisionDebugger:
        """Return the process's debugger, made on the first call."""
        if cls._instance is None:
            instance = super().__new__(cls)
            given: dict[str, Any] = {"task": task, "level": level, "step": step}
            if config_path is None:
                named = {key: value for key, value in given.items() if value is not None}
                instance._settings = settings(Settings().dump_path if dump_path is None else dump_path, **named)
            else:
                instance._settings = read_config(config_path, dump_path=dump_path, **given)
            instance._session = open_session(instance._settings, model, cls._framework)
            atexit.register(instance._finish)
            cls._instance = instance
        return cls._instance

    @classmethod
    def start(cls, model: Model | None = None) -> None:
        """Record from here on, where this step and rank are wanted.

        Raises ConfigError where the level needs a model and there is none, RecordingError where a former run left a
        dump; both the first time, before anything has run. A dump that cannot be written later ends the recording and
        not the training.
        """
        cls._of_process().start(model)

    @classmethod
    def stop(cls) -> None:
        """Pause; the files on disk are complete, tensors included. ``start`` goes on in the same step.

        What ran until now still gets its backward records, which are in the files after ``step``.
        """
        cls._of_process().stop()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """Say that what is to be recorded, forward and backward, has been called: the same as ``stop``."""
        cls.stop()

    @classmethod
    def step(cls) -> None:
        """End a step, after its backward pass: its files are finished, and call numbers restart.

        The next ``start`` writes into the next folder.
        """
        cls._of_process().step()

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Say which number the step that runs now has. Raises ConfigError for a number below 0."""
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ConfigError("step", step, "an integer from 0")
        cls._of_process().recorder.step = step

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by name, and its gradients when they arrive. Only at level debug."""
        instance, session = cls._made(), cls._of_process()
        if instance._settings.level != "debug":
            raise ConfigError("level", instance._settings.level, "debug, for save() to do anything")
        # At this level there is nothing else to switch on, so saving does not wait for start().
        session.start()
        session.save(variable, name, save_backward)

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
        return cls._made()._session

    @classmethod
    def _made(cls) -> PrecisionDebugger:
        if cls._instance is None:
            raise RecordingError("PrecisionDebugger instance is not created: call PrecisionDebugger(...) first")
        return cls._instance

    def _finish(self) -> None:
        atexit.unregister(self._finish)
        summary = self._session.close()
        if self._session.recorder.is_abandoned:
            return
        sys.stderr.write(f"msprobe_hooks: {summary}\n")
        type(self)._instance = None


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
