"""Statistics of a training's parameters, step by step, and its gradients. Needs the extension mindspore.

`watch` and msprobe's `TrainerMon` write what happens to weights, gradients, optimizer states and activations at each
step; task ``grad_probe`` of ``PrecisionDebugger`` writes the signs and sizes of gradients.
Public names: ``watch``, ``watch_mindspore``, ``TrainerMon`` (also of `msprobe_hooks.mindspore`), ``GradComparator``,
``csv2tensorboard_by_step``. Task: ``grad_probe``, with the section of that name in ``config.json``.
Files: CSV files of msprobe's names or this project's series, ``module_struct.json``, ``stack_info.csv``; of the probe
``grad_summary_<step>.csv`` and sign maps.
Options and commands: those of `pytest_msprobe.extensions.monitor`, which judges series and compares them.
Without it these names are missing and the task is refused.
Take it out by deleting this folder, pytest_msprobe/extensions/monitor and tests/extensions/monitor.

Importing its modules loads msgspec and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.extension_points import Keys, Probe
    from msprobe_hooks.record import Framework

EXPORTS = {
    "GradComparator": "grad_probe.sign_maps",
    "TrainerMon": "watch.trainer_mon",
    "csv2tensorboard_by_step": "series.conversion",
    "watch": "watching",
    "watch_mindspore": "watching",
}
MINDSPORE_EXPORTS = {"TrainerMon": "watch.mindspore_watcher"}
TASKS = ("grad_probe",)


def open_probe(task: str | None, config: Keys, arguments: Keys, framework: Framework) -> Probe | None:
    """Return what writes gradients where the task is ``grad_probe``."""
    if task not in TASKS:
        return None
    from msprobe_hooks.extensions.monitor.grad_probe.probe import probe_settings

    settings = probe_settings(config, **{key: arguments[key] for key in ("dump_path", "step")})
    if framework == "mindspore":
        from msprobe_hooks.extensions.monitor.grad_probe.mindspore_probe import MindSporeGradientProbe

        return MindSporeGradientProbe(settings)
    from msprobe_hooks.extensions.monitor.grad_probe.torch_statistics import TorchGradientProbe

    return TorchGradientProbe(settings)
