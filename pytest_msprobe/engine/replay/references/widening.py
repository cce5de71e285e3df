"""Precision in which a device computes whatever it is given."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Widen narrow floats and whole numbers to float32; wider floats stay.

    For what a rounding to whole numbers follows: computed in half precision it would be another whole number.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
