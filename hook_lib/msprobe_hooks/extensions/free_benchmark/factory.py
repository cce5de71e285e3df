"""Factory of a framework's free benchmark, which is imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe_hooks.extensions.free_benchmark.config import BenchmarkSettings, as_for_mindspore
from msprobe_hooks.recording.config import Settings

if TYPE_CHECKING:
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.session import Model, Session


def open_benchmark(
    settings: Settings, benchmark: BenchmarkSettings, model: Model | None, framework: Framework
) -> Session:
    """Return a session that makes calls again; its framework is imported here.

    Raises ConfigError for what cannot be done with MindSpore.
    """
    if framework == "mindspore":
        settings, benchmark = as_for_mindspore(settings, benchmark)
        from msprobe_hooks.extensions.free_benchmark.mindspore_recorder import MindSporeBenchmarkRecorder
        from msprobe_hooks.extensions.mindspore.session import MindSporeSession

        return MindSporeSession(settings, model, MindSporeBenchmarkRecorder(settings, benchmark))
    from msprobe_hooks.extensions.free_benchmark.torch_recorder import TorchBenchmarkRecorder
    from msprobe_hooks.torch.session import TorchSession

    return TorchSession(settings, model, TorchBenchmarkRecorder(settings, benchmark))
