"""Routing of a mixture of experts."""

from __future__ import annotations

import torch
from torch import Tensor


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, expert_idx, row_idx), each (..., k), of gating logits ``x`` (..., experts), 2-D or 3-D.

    y are the k largest of softmax(x), expert_idx (int32) where they stand, the lower index first among
    equals; rows with ``finished`` true get the index ``experts``. row_idx (int32) is the position of each
    entry in column-major order of the (rows, k) matrix: row_idx[i, j] = j * rows + i.
    """
    experts = x.shape[-1]
    probabilities, order = torch.softmax(x, -1).sort(stable=True, dim=-1, descending=True)
    expert_idx = order[..., :k]
    if finished is not None:
        expert_idx = expert_idx.masked_fill(finished.bool().unsqueeze(-1), experts)
    rows = x.shape[:-1].numel()
    row_idx = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).T
    return probabilities[..., :k], expert_idx.int(), row_idx.reshape(*x.shape[:-1], k)
