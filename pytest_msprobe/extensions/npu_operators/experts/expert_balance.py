"""Experts of which there are several copies, and the card whose copy a token is sent to."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32


def npu_moe_update_expert(
    expert_ids: Tensor,
    eplb_table: Tensor,
    *,
    expert_scales: Tensor | None = None,
    pruning_threshold: Tensor | None = None,
    active_mask: Tensor | None = None,
    local_rank_id: int = -1,
    world_size: int = -1,
    balance_mode: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Return (places of the tokens' experts, which of them are kept), both (tokens, k), of ``expert_ids`` likewise.

    Row e of ``eplb_table`` (experts, F) holds the number of copies of expert e, then where they are. With
    ``balance_mode`` 0 a card takes copy local_rank_id // ceil(world_size / copies), with 1 token t takes copy
    t % copies. An expert is kept where its scale is at least ``pruning_threshold`` (k) times the sum of the token's
    scales and ``active_mask`` (tokens) is true. Nothing is promised of what is kept, here None, without
    ``expert_scales``. As op-plugin's documentation and its example compute it.

    Raises ValueError for another ``balance_mode``, for mode 0 without rank and size, and for scales without threshold.
    """
    if balance_mode not in (0, 1):
        raise ValueError(f"balance_mode {balance_mode} of npu_moe_update_expert is neither 0 nor 1")
    if balance_mode == 0 and (local_rank_id < 0 or world_size < 1):
        raise ValueError("npu_moe_update_expert needs local_rank_id and world_size with balance_mode 0")
    experts = expert_ids.long()
    copies = eplb_table[:, 0].long()[experts]
    if balance_mode == 0:
        per_copy = -(-world_size // copies)
        chosen = local_rank_id // per_copy
    else:
        tokens = torch.arange(len(experts), device=experts.device).unsqueeze(1)
        chosen = tokens % copies
    places = eplb_table[experts, chosen + 1].to(expert_ids.dtype)
    return places, _kept(expert_scales, pruning_threshold, active_mask)


def _kept(scales: Tensor | None, threshold: Tensor | None, active: Tensor | None) -> Tensor | None:
    if scales is None:
        return None
    if threshold is None:
        raise ValueError("expert_scales of npu_moe_update_expert need pruning_threshold")
    wide = at_least_float32(scales)
    kept = wide >= at_least_float32(threshold).reshape(1, -1) * wide.sum(-1, keepdim=True)
    return kept if active is None else kept & active.bool().unsqueeze(1)
