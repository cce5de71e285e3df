"""Search for inf and nan in MindSpore's dynamic graph mode, on the host."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.common.initializer import Zero

from msprobe_hooks.extensions.mindspore.gradients import takes_gradient
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder, host
from msprobe_hooks.extensions.overflow.recorder import OverflowRecorder
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.config import Settings


class MindSporeOverflowRecorder(OverflowRecorder, MindSporeRecorder):
    """Looks for inf and nan in what runs in MindSpore.

    Its tensors count no versions: those that a call changes by its name are counted here.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._changes: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def version(self, tensor: Tensor) -> int:
        """Return how many calls changed the tensor."""
        entry = self._changes.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else 0

    def tensors_of(self, values: Any) -> list[tuple[Tensor, int]]:
        """Return the tensors among nested values, each with its version."""
        return [(tensor, self.version(tensor)) for tensor in tensors_in(values, Tensor)]

    def looks(self, tensor: Tensor) -> tuple[Any, Any]:
        """Return shape and dtype."""
        return tensor.shape, tensor.dtype

    def blank(self, looks: tuple[Any, Any]) -> Tensor:
        """Return a tensor that has not been initialised."""
        shape, dtype = looks
        return Tensor(shape=shape, dtype=dtype, init=Zero())

    def alias(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself: nothing waits on a device."""
        return tensor

    def is_differentiated(self, outputs: Sequence[tuple[Tensor, int]]) -> bool:
        """Return whether any is differentiated by."""
        return any(takes_gradient(tensor) for tensor, _ in outputs)

    def is_view_of(self, tensor: Tensor, others: Sequence[tuple[Tensor, int]]) -> bool:
        """Return False: MindSpore does not say."""
        return False

    def is_finite(self, tensor: Tensor) -> bool:
        """Check all values."""
        array = host(tensor)
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())

    def size(self, tensor: Tensor) -> int:
        """Return the bytes of the elements."""
        return int(tensor.nbytes)

    def witnesses(self, tensors: Sequence[Tensor]) -> list[float]:
        """Return 0 for what is finite, else NaN."""
        return [0.0 if self.is_finite(tensor) else math.nan for tensor in tensors]

    def numbers(self, witnesses: Sequence[float]) -> list[float]:
        """Return them: they are numbers."""
        return list(witnesses)

    def _before_change(self, tensors: list[tuple[Tensor, int]]) -> None:
        super()._before_change(tensors)
        for tensor, _ in tensors:
            self._changes[id(tensor)] = weakref.ref(tensor), self.version(tensor) + 1

    def close_step(self, *, is_last: bool = False) -> None:
        """Finish the files of the step."""
        super().close_step(is_last=is_last)
        self._changes.clear()
