"""Random leaves of calls that are differentiated when they are recorded."""

from __future__ import annotations

import torch


def leaf(*shape: int) -> torch.Tensor:
    """Return normal numbers that a gradient is wanted of."""
    return torch.randn(shape).requires_grad_()


def backward(output: torch.Tensor) -> None:
    """Differentiate an output with normal numbers as its gradient."""
    output.backward(torch.randn_like(output), retain_graph=True)
