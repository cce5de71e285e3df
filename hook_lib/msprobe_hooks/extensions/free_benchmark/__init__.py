"""Task ``free_benchmark``: calls that are repeated with perturbed inputs. Needs the extension mindspore.

While a training runs, each call is made once more with inputs that are perturbed, rounded less, or on the CPU; results
that change too much are written, or with the handler ``fix`` replaced by the better ones.
Task of ``PrecisionDebugger``: ``free_benchmark``, with the section of that name in ``config.json``.
Files: ``free_benchmark.csv``, with PyTorch in each step's folder.
Options: those of `pytest_msprobe.extensions.free_benchmark`, which perturbs the calls of a dump.
Without it the task is refused.
Take it out by deleting this folder, pytest_msprobe/extensions/free_benchmark and tests/extensions/free_benchmark, and
kernel_dump, which needs it.

Importing its modules loads isal, mindspore, msgspec and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.extension_points import Keys
    from msprobe_hooks.record import Framework
    from msprobe_hooks.recording.session import Model, Session


TASKS = ("free_benchmark",)


def open_task(
    task: str | None, config: Keys, arguments: Keys, model: Model | None, framework: Framework
) -> Session | None:
    """Return what makes calls again where the task is ``free_benchmark``.

    Raises ConfigError for what cannot be done with MindSpore.
    """
    if task not in TASKS:
        return None
    from msprobe_hooks.extensions.free_benchmark.config import as_for_mindspore, benchmark_settings

    overrides = {key: arguments[key] for key in ("dump_path", "level", "step", "exclude")}
    settings, benchmark = benchmark_settings(config, **overrides)
    if framework == "mindspore":
        settings, benchmark = as_for_mindspore(settings, benchmark)
        from msprobe_hooks.extensions.free_benchmark.mindspore_recorder import MindSporeBenchmarkRecorder
        from msprobe_hooks.extensions.mindspore.session import MindSporeSession

        return MindSporeSession(settings, model, MindSporeBenchmarkRecorder(settings, benchmark))
    from msprobe_hooks.extensions.free_benchmark.torch_recorder import TorchBenchmarkRecorder
    from msprobe_hooks.torch.session import TorchSession

    return TorchSession(settings, model, TorchBenchmarkRecorder(settings, benchmark))
