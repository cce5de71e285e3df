"""Which state of a tensor was seen."""

from __future__ import annotations

from torch import Tensor


def version_of(tensor: Tensor) -> int:
    """Return the version counter, which each change of the values moves; -1 in inference mode, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1
