"""The gradient probe of a framework."""

from __future__ import annotations

from typing import Any, Protocol

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.grad_probe.config import TASK, ProbeSettings


class Probe(Protocol):
    """Writes gradients at each call of an optimizer."""

    def monitor(self, model: Any, optimizer: Any = None) -> None:
        """Write a model's gradients from the next optimizer step on. Raises ConfigError for what is no model."""

    def begin_at(self, step: int) -> None:
        """Give the next step of each optimizer this number."""

    def close(self) -> str:
        """Stop; return what was written as a sentence, nothing in a forked child."""


def open_probe(settings: ProbeSettings, framework: str) -> Probe:
    """Return the probe of a framework, which is imported here. Raises ConfigError where there is none."""
    if framework != "pytorch":
        raise ConfigError("task", TASK, f"statistics, tensor or structure, for {framework}")
    from msprobe_hooks.instruments.grad_probe.probe import GradientProbe

    return GradientProbe(settings)
