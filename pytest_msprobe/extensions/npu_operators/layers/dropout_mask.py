"""Dropout whose mask is a bit for each element, the lowest of a byte first: drawing the mask, and applying it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.random_apis.mask_bits import kept_by

_FILLED_TO = 128


def npu_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return the gradient of a dropout with probability ``p``: grad / (1 - p) where ``mask`` keeps, otherwise 0."""
    if p == 1:
        return torch.zeros_like(grad_output)
    return torch.where(kept_by(mask, grad_output.shape), grad_output / (1 - p), 0.0)


def npu_dropout_do_mask(self: Tensor, mask: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return (self / (1 - p) where ``mask`` keeps and 0 where it does not, mask)."""
    return npu_dropout_backward(self, mask, p), mask


def npu_dropout_gen_mask(
    size: Sequence[int],
    p: float,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """Return bits that each keep an element of ``size`` with probability 1 - ``p``; ``dtype`` is that of the input."""
    return _bits(math.prod(size), p, None)


def _npu_dropout_gen_mask(
    self: Tensor,
    size: Sequence[int],
    p: float,
    seed: int,
    offset: int,
    *,
    parallel: bool | None = True,
    sync: bool | None = None,
) -> Tensor:
    """Return such bits, the same for the same ``seed`` and ``offset``; ``self`` has no part."""
    generator = torch.Generator().manual_seed((seed ^ (offset << 20)) % 2**63)
    return _bits(math.prod(size), p, generator)


def _npu_dropout(self: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return (self / (1 - p) where a drawn mask keeps and 0 where it does not, mask)."""
    return npu_dropout_do_mask(self, _bits(self.numel(), p, None), p)


def _bits(count: int, p: float, generator: torch.Generator | None) -> Tensor:
    kept = torch.zeros(math.ceil(count / _FILLED_TO) * _FILLED_TO, dtype=torch.int64)
    kept[:count] = torch.rand(count, generator=generator) >= p
    return (kept.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)
