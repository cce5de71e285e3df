"""The free benchmark of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.free_benchmark.config import TASK, BenchmarkSettings
from msprobe_hooks.recording.config import Settings

if TYPE_CHECKING:
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.session import Model, Session


def open_benchmark(
    settings: Settings, benchmark: BenchmarkSettings, model: Model | None, framework: Framework
) -> Session:
    """Return a session that makes calls again; its framework is imported here. Raises ConfigError for MindSpore."""
    if framework == "mindspore":
        raise ConfigError("task", TASK, "with MindSpore, the same on a recorded dump: pytest --msprobe-perturb")
    from msprobe_hooks.instruments.free_benchmark.torch_recorder import TorchBenchmarkRecorder
    from msprobe_hooks.torch.session import TorchSession

    return TorchSession(settings, model, TorchBenchmarkRecorder(settings, benchmark))
