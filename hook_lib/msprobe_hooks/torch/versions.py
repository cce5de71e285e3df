"""Which state of a tensor was seen."""

from __future__ import annotations

from torch import Tensor


def version_of(tensor: Tensor) -> int:
    """Return the version counter, which each change of the values moves; -1 in inference mode, which has none."""
    return -1 if tensor.is_inference() else tensor._version
