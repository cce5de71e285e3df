"""Attributes of ``PrecisionDebugger`` that programs written for msprobe read: its configuration and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msprobe_hooks.recording import validators as checks

if TYPE_CHECKING:
    from msprobe_hooks.recording.session import Session


class Recording(Protocol):
    """A recording of calls or gradients, and its checked settings."""

    @property
    def settings(self) -> Any:
        """Return what it collects."""

    def record_into(self, dump_path: Path) -> None:
        """Write into another folder from the next start on. Raises ConfigError where that is not possible."""


class DebuggerConfig:
    """The configuration of a debugger under msprobe's names. Only ``dump_path`` can be set."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._dump_path: Path = recording.settings.dump_path

    @property
    def dump_path(self) -> str:
        """The folder of the recording. One that is set is used from the next ``start`` on, where call numbers restart.

        Raises ConfigError where the new one is no path, or the recording cannot leave its folder.
        """
        return str(self._dump_path)

    @dump_path.setter
    def dump_path(self, value: str | Path) -> None:
        path = checks.path("dump_path", value)
        if path != self._dump_path:
            self._recording.record_into(path)
            self._dump_path = path

    @property
    def level(self) -> str:
        """The level, such as ``L1``."""
        level: str = self._recording.settings.level
        return level

    @property
    def task(self) -> str:
        """The task, such as ``statistics``."""
        task: str = self._recording.settings.task
        return task

    @property
    def rank(self) -> list[int]:
        """The ranks that are recorded; none means all."""
        return sorted(self._recording.settings.rank or ())

    @property
    def step(self) -> list[int]:
        """The steps that are recorded; none means all."""
        return sorted(self._recording.settings.step or ())


class DebuggerService:
    """The state of a debugger's recording under msprobe's names. ``config`` is the debugger's own."""

    def __init__(self, config: DebuggerConfig, session: Session | None) -> None:
        self.config = config
        self._session = session

    @property
    def current_iter(self) -> int:
        """The number of the current step; 0 with task ``grad_probe``, where optimizers count."""
        return 0 if self._session is None else self._session.recorder.step

    @property
    def should_stop_service(self) -> bool:
        """Return whether nothing more is recorded: all steps of the configuration are over, or the disk refused."""
        if self._session is None:
            return False
        steps = self.config.step
        return self._session.recorder.failure is not None or bool(steps and self.current_iter > steps[-1])

    def _reset_status(self) -> None:
        """Do nothing: call numbers restart with each step and each ``dump_path``, and go on within one."""

    #: The name in msprobe 1.2.
    reset_status = _reset_status
