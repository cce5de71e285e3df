"""The merging of attentions over parts of the keys, as ring attention does it step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from torch import Tensor


def npu_ring_attention_update(
    prev_attn_out: Tensor, prev_softmax_max: Tensor, prev_softmax_sum: Tensor, cur_attn_out: Tensor,
    cur_softmax_max: Tensor, cur_softmax_sum: Tensor,
    *, actual_seq_qlen: Tensor | None = None, input_layout: str = "SBH", input_softmax_layout: str = "",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (attention, maximum, sum) over both parts of the keys, of attention, maximum and sum over each.

    maximum = max(m1, m2), sum = s1 e^(m1 - maximum) + s2 e^(m2 - maximum), and attention the mean of both weighted
    with the two summands. Attention is (S, B, N * D) with statistics (B, N, S, 8), or for TND (T, N, D) with (T, N, 8);
    these are token by token where ``input_softmax_layout`` is TND, otherwise of each sequence one head after the
    other. ``actual_seq_qlen`` says where sequences end, and may begin with 0. Formulas: op-plugin's documentation.

    Raises ValueError where the ends are needed and missing, and NotImplementedError for another layout.
    """
    refuse("npu_ring_attention_update", input_layout=None if input_layout in ("SBH", "TND") else input_layout)
    maximum = torch.maximum(prev_softmax_max, cur_softmax_max)
    shares = [
        total * torch.exp(highest - maximum)
        for highest, total in ((prev_softmax_max, prev_softmax_sum), (cur_softmax_max, cur_softmax_sum))
    ]
    total = shares[0] + shares[1]
    first, second = (share[..., 0] / total[..., 0] for share in shares)
    if input_layout == "SBH":
        heads = first.shape[1]
        # (S, B, N, 1)
        by_head = [each.permute(2, 0, 1).unsqueeze(-1) for each in (first, second)]
        previous, current = (torch.unflatten(each, -1, (heads, -1)) for each in (prev_attn_out, cur_attn_out))
        merged = (previous * by_head[0] + current * by_head[1]).flatten(-2)
        return merged.to(prev_attn_out.dtype), maximum, total
    if input_softmax_layout != "TND":
        if actual_seq_qlen is None:
            raise ValueError("input_layout TND of npu_ring_attention_update needs actual_seq_qlen")
        first, second = (_by_token(each, actual_seq_qlen.tolist()) for each in (first, second))
    merged = prev_attn_out * first.unsqueeze(-1) + cur_attn_out * second.unsqueeze(-1)
    return merged.to(prev_attn_out.dtype), maximum, total


def _by_token(statistic: Tensor, ends: list[int]) -> Tensor:
    """Order (T, N) numbers, of each sequence head by head, token by token."""
    heads, flat, start, parts = statistic.shape[1], statistic.flatten(), 0, []
    for end in (*ends, len(statistic)):
        parts.append(flat[start * heads : end * heads].reshape(heads, -1).T)
        start = max(start, end)
    return torch.cat(parts)
