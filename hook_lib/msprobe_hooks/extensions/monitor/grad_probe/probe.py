"""The gradient probe of any framework: which steps are written, into which files, and its messages."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.grad_probe.config import ProbeSettings
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.extensions.monitor.grad_probe.writer import GradientRow, ProbeFiles
from msprobe_hooks.messages import counted, did_you_mean, listed
from msprobe_hooks.recording.safety_net import abandon_in_children

_log = logging.getLogger("msprobe_hooks")


class GradientProbe(ABC):
    """Writes gradients each time an optimizer is about to use them.

    A framework says how optimizers are watched. Their calls are counted apart. The training never fails for the probe's
    sake: what it cannot read or write is reported once.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        self.settings = settings
        self._first_step = 0
        self._next_step: dict[str, int] = {}
        self._files: ProbeFiles | None = None
        self._written: set[int] = set()
        self._warned: set[str] = set()
        self._is_abandoned = False
        abandon_in_children(self)

    @abstractmethod
    def monitor(self, watched: Any, optimizer: Any = None) -> None:
        """Write gradients from the next optimizer step on: of PyTorch's model, of MindSpore's optimizer.

        ``optimizer`` names the one whose calls count where it holds copies of the model's parameters, not themselves.
        Raises ConfigError for anything else.
        """

    @abstractmethod
    def remove_hooks(self) -> None:
        """Watch no optimizer any more."""

    @abstractmethod
    def rank(self) -> int | None:
        """Return this process's rank, None where there is no process group."""

    @abstractmethod
    def parameters(self) -> Iterable[str]:
        """Return the names of the trainable parameters that are watched once an optimizer steps them."""

    @abstractmethod
    def why_no_step(self) -> str:
        """Return why no optimizer step was counted."""

    def begin_at(self, step: int) -> None:
        """Set the number of the next step of each optimizer."""
        self._first_step = step
        self._next_step = dict.fromkeys(self._next_step, step)

    def record_into(self, dump_path: Path) -> None:
        """Write into another folder. Raises ConfigError where there are gradients in the first one."""
        if self._files is not None:
            allowed = f"{self.settings.dump_path}, where gradients are written already"
            raise ConfigError("dump_path", str(dump_path), allowed)
        self.settings = replace(self.settings, dump_path=dump_path)

    def abandon(self) -> None:
        """Stop looking, in a forked child: the files are the parent's."""
        self._is_abandoned = True
        self.remove_hooks()

    def close(self) -> str:
        """Stop looking; return what was written as a sentence, nothing in a forked child."""
        self.remove_hooks()
        if self._is_abandoned:
            return ""
        if self._files is not None and self._written:
            missing = [name for name in self.parameters() if self.is_listed(name) and name not in self._next_step]
            without = f", without those of {listed(missing)}, which no optimizer steps" if missing else ""
            steps = counted(len(self._written), "optimizer step")
            return f"gradients of {steps} are in {self._files.folder}{without}"
        if self._warned:
            return "no gradients were written: see the warnings above"
        unwanted = "this rank or these steps are not configured"
        return f"no gradients were written: {unwanted if self._next_step else self.why_no_step()}"

    def count(self, parameters: Collection[str]) -> int:
        """Count a call of the optimizer of these parameters; return the number of this step."""
        step = max(self._next_step.get(name, self._first_step) for name in parameters)
        self._next_step.update(dict.fromkeys(parameters, step + 1))
        return step

    def is_wanted(self, step: int) -> bool:
        """Return whether this step of this rank is to be written."""
        rank = self.rank()
        if rank is not None and self.settings.rank is not None and rank not in self.settings.rank:
            return False
        return self.settings.step is None or step in self.settings.step

    def is_listed(self, parameter: str) -> bool:
        """Return whether a parameter is to be looked at."""
        return not self.settings.param_list or parameter in self.settings.param_list

    def write(self, step: int, rows: Sequence[GradientRow], signs: Iterable[tuple[str, SignMap]]) -> None:
        """Write what was seen at a step. Raises OSError or RecordingError where the disk refuses."""
        if self._files is None:
            self._files = ProbeFiles(self.settings.dump_path / f"rank{self.rank() or 0}", self.settings)
        self._files.write(step, rows, signs)
        self._written.add(step)

    def report_unlisted(self, parameters: Sequence[str]) -> None:
        """Report which names of ``param_list`` are none of these."""
        unknown = [name for name in self.settings.param_list if name not in parameters]
        if unknown:
            example = f"; its names are such as {parameters[0]!r}" if parameters else ""
            hint = did_you_mean(unknown[0], parameters) or example
            self.warn_once(f"grad_probe.param_list: not parameters of this model: {', '.join(unknown)}{hint}")

    def report_failure(self, error: Exception) -> None:
        """Report that a step could not be read or written."""
        self.warn_once(f"gradients of a step are not written: {error or type(error).__name__}")

    def warn_once(self, text: str) -> None:
        """Log a warning, the first time."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)
