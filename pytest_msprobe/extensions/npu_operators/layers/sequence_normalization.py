"""Normalization of features over the steps that a sequence has."""

from __future__ import annotations

import torch
from torch import Tensor

# what op-plugin hands to the device
_EPSILON = 1e-5


def npu_normalize_batch(self: Tensor, seq_len: Tensor, normalize_type: int = 0) -> Tensor:
    """Return (x - mean) / (std + 1e-5) of all steps of ``self`` (N, C, D), over the first ``seq_len`` (N) of them.

    ``normalize_type`` 0 takes mean and standard deviation of each feature, 1 of all features of a sequence. The
    deviation is the unbiased one, as op-plugin's tests have it. Raises ValueError for another type.
    """
    if normalize_type not in (0, 1):
        raise ValueError(f"normalize_type {normalize_type} of npu_normalize_batch is neither 0 nor 1")
    results = []
    for x, length in zip(self, seq_len.tolist(), strict=True):
        known = x[:, :length]
        over = (1,) if normalize_type == 0 else (0, 1)
        std, mean = torch.std_mean(known, over, keepdim=True)
        results.append((x - mean) / (std + _EPSILON))
    return torch.stack(results)
