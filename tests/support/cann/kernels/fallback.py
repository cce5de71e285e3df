"""Operators for which a card has no kernel: the CPU computes them, and torch_npu says so once for each."""

from __future__ import annotations

import os
from typing import Any

from tests.support.cann.kernels.launch import Compute

_WARNING = (
    "Warning: CAUTION: The operator '{}' is not currently supported on the NPU backend and will fall back to run on "
    "the CPU. This may have performance implications. (function npu_cpu_fallback)\n"
)
_said: set[str] = set()


def falling_back(name: str, compute: Compute) -> Compute:
    """Return what computes an operator and says once that the CPU does, as torch_npu says it: not by way of Python."""

    def computed(*args: Any, **kwargs: Any) -> Any:
        if name not in _said:
            _said.add(name)
            os.write(2, _WARNING.format(name).encode())
        return compute(*args, **kwargs)

    return computed
