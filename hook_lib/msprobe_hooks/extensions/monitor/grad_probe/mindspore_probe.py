"""The gradient probe of MindSpore's PyNative mode: it looks at the gradients that an optimizer is called with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore.context import process_rank, require_pynative
from msprobe_hooks.extensions.mindspore.recorder import host
from msprobe_hooks.extensions.monitor.grad_probe.probe import GradientProbe, GradientRow, ProbeSettings, interval_shares
from msprobe_hooks.recording.array_statistics import Array, measure
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.safety_net import guarded


class MindSporeGradientProbe(GradientProbe):
    """Watches the optimizers that it is given, each as an instance."""

    def __init__(self, settings: ProbeSettings) -> None:
        super().__init__(settings)
        self._handles: list[Any] = []

    def monitor(self, watched: nn.Cell, optimizer: Any = None) -> None:
        """Write the gradients that an optimizer is called with, from its next call on. Raises ConfigError."""
        if not isinstance(watched, nn.Cell) or not hasattr(watched, "parameters"):
            raise ConfigError("optimizer", watched, "an optimizer of MindSpore")
        require_pynative()
        names = [parameter.name for parameter in watched.parameters]
        self.report_unlisted(names)

        def before_call(_: nn.Cell, arguments: tuple[Any, ...]) -> None:
            self._observe(names, arguments[0])

        self._handles.append(watched.register_forward_pre_hook(uncopied(guarded(before_call, self.report_failure))))

    def remove_hooks(self) -> None:
        """Watch no optimizer any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def rank(self) -> int | None:
        """Return this process's rank, None where communication is not initialised."""
        return process_rank()

    def parameters(self) -> list[str]:
        """Return nothing: of a network only the parameters of its optimizers are known."""
        return []

    def why_no_step(self) -> str:
        """Return why not one optimizer step was counted."""
        return "no optimizer passed to monitor(optimizer) was called"

    def _observe(self, names: Sequence[str], gradients: Sequence[Any]) -> None:
        step = self.count(names)
        if not self.is_wanted(step):
            return
        arrays = {}
        for name, gradient in zip(names, gradients, strict=True):
            if not self.is_listed(name):
                continue
            if isinstance(gradient, Tensor) and gradient.is_floating_point():
                arrays[name] = host(gradient)
            else:
                self.warn_once(f"the gradient of {name} is left out: it is not a floating-point tensor")
        signs = ((name, np.greater(array, 0)) for name, array in arrays.items())
        self.write(step, [self._row(name, array) for name, array in arrays.items()], signs)

    def _row(self, name: str, array: Array) -> GradientRow:
        numbers = measure(array)
        has_elements = array.size > 0
        return GradientRow(
            name,
            array.shape,
            float(numbers.max) if has_elements and numbers.max is not None else math.nan,
            float(numbers.min) if has_elements and numbers.min is not None else math.nan,
            abs(float(numbers.norm or 0.0)),
            _shares(array, self.settings.bounds) if self.settings.counts_intervals else (),
            hashlib.md5(array.astype(np.float32).tobytes()).hexdigest() if self.settings.keeps_checksums else None,
        )


def _shares(array: Array, bounds: Sequence[int | float]) -> tuple[float, ...]:
    # Compared in half precision, a bound would be rounded to it.
    wide = array if array.dtype == np.float64 else array.astype(np.float32, copy=False)
    up_to = [int(np.count_nonzero(wide <= bound)) for bound in bounds]
    return interval_shares(up_to, int(np.count_nonzero(wide == 0)), array.size)
