"""Arguments of golden definitions: those that none takes, and the precision that the others are computed in."""

from __future__ import annotations

import torch
from torch import Tensor


def refuse(api: str, **arguments: object) -> None:
    """Raise NotImplementedError that names the first argument that is set; None means that it is not."""
    for name, given in arguments.items():
        if given is not None:
            raise NotImplementedError(f"{api} has no golden definition with {name}")


def at_least_float32(x: Tensor) -> Tensor:
    """Widen narrow floats and whole numbers to float32; wider floats stay.

    For what a rounding to whole numbers follows: computed in half precision it would be another whole number.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
