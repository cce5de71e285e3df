"""The ratio of two results of MindSpore, taken on the host: the same rule as for PyTorch.

msprobe has another one for MindSpore, which leaves out values below the tolerance one by one, so that a value that
becomes nothing is not seen.
"""

from __future__ import annotations

import math

import numpy as np
from mindspore import Tensor

from msprobe_hooks.extensions.free_benchmark.deviation import Judging
from msprobe_hooks.extensions.mindspore.host_values import host

# Elements that are looked at at once. Which number this is changes no verdict.
_CHUNK = 2**22


class MindSporeJudging(Judging):
    """Judges tensors of MindSpore."""

    tensor_class = Tensor

    def is_compared(self, tensor: Tensor) -> bool:
        """Return whether a tensor is of real numbers and not empty."""
        return bool(tensor.is_floating_point()) and tensor.size > 0

    def largest_ratio(self, original: Tensor, perturbed: Tensor, tolerance: float) -> float | None:
        """Return the largest quotient, or None where a sign changes."""
        originals, others = host(original.astype(perturbed.dtype)).reshape(-1), host(perturbed).reshape(-1)
        wide = np.float64 if others.dtype == np.float64 else np.float32
        largest = 1.0
        with np.errstate(all="ignore"):
            for start in range(0, others.size, _CHUNK):
                a, b = (each[start : start + _CHUNK].astype(wide) for each in (originals, others))
                if (a * b < -(tolerance**2)).any():
                    return None
                ratio = np.abs(a).clip(min=tolerance) / np.abs(b).clip(min=tolerance)
                ratio[np.isnan(ratio)] = 1.0
                least = float(ratio.min())
                largest = max(largest, float(ratio.max()), 1 / least if least else math.inf)
        return largest
