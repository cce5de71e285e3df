"""The gradient probe of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe_hooks.extensions.monitor.grad_probe.probe import GradientProbe, ProbeSettings

if TYPE_CHECKING:
    from msprobe_hooks.record import Framework


def open_probe(settings: ProbeSettings, framework: Framework) -> GradientProbe:
    """Return the probe of a framework, which is imported here."""
    if framework == "mindspore":
        from msprobe_hooks.extensions.monitor.grad_probe.mindspore_probe import MindSporeGradientProbe

        return MindSporeGradientProbe(settings)
    from msprobe_hooks.extensions.monitor.grad_probe.torch_statistics import TorchGradientProbe

    return TorchGradientProbe(settings)
