"""Fused attention in versions 2 and 3, ring attention, and softmax fused with masks and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from msprobe_hooks.dump.effects import Effects
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.random_apis import probability_switch
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.attention import (
    FUSED_ATTENTION,
    kernel_on_gpu,
    npu_fusion_attention,
)
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.layers.drawn_results import dropout_with_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

# CANN's default, the greatest int32: every earlier or later token is attended to.
_UNLIMITED = 2147483647


@golden("NPU.npu_fusion_attention_v2", FUSED_ATTENTION, Effects(defined=3), on_gpu=kernel_on_gpu)
def npu_fusion_attention_v2(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    query_rope: Tensor | None = None, key_rope: Tensor | None = None, scale: float = 1.0,
    keep_prob: float = 1.0, pre_tokens: int = _UNLIMITED, next_tokens: int = _UNLIMITED, inner_precise: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False, pse_type: int = 1, q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None, softmax_layout: str = "", sink: Tensor | None = None,
    dropout_mask: Tensor | None = None, seed: int = 0, offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """Return :func:`npu_fusion_attention` of the arguments, of which a few have other names.

    ``query_rope`` and ``key_rope`` (T, N, D of the rotated part) add their product to q k^T. ``pse_type`` 1 scales
    what q k^T + pse gives, 0 adds pse to the scaled q k^T. Raises what :func:`npu_fusion_attention` does,
    ValueError for one rotated part without the other, and NotImplementedError for the types that make pse
    themselves (2 and 3).
    """
    refuse(
        "npu_fusion_attention_v2",
        pse_type=None if pse_type in (0, 1) else pse_type,
        q_start_idx=q_start_idx or None,
        kv_start_idx=kv_start_idx or None,
    )
    if (query_rope is None) != (key_rope is None):
        raise ValueError("npu_fusion_attention_v2 takes query_rope and key_rope together")
    if query_rope is not None and key_rope is not None:
        query, key = torch.cat((query, query_rope), -1), torch.cat((key, key_rope), -1)
    return npu_fusion_attention(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=pse / scale if pse is not None and pse_type == 0 else pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale=scale,
        keep_prob=keep_prob,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
        dropout_mask=dropout_mask,
    )


@golden("NPU.npu_fusion_attention_v3", FUSED_ATTENTION, Effects(defined=3), on_gpu=kernel_on_gpu)
def npu_fusion_attention_v3(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, pse: Tensor | None = None,
    padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, scale: float = 1.0,
    keep_prob: float = 1.0, pre_tockens: int = _UNLIMITED, next_tockens: int = _UNLIMITED,
    inner_precise: int = 0, prefix: Sequence[int] | None = None,
    actual_seq_qlen: Tensor | Sequence[int] | None = None,
    actual_seq_kvlen: Tensor | Sequence[int] | None = None, sparse_mode: int = 0,
    gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "", sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return what :func:`npu_fusion_attention` does, seed and offset as tensors and without the number of scores.

    The cumulative lengths may be tensors.
    """
    out, maximum, total, empty, seed, offset, _ = npu_fusion_attention(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale=scale,
        keep_prob=keep_prob,
        pre_tockens=pre_tockens,
        next_tockens=next_tockens,
        prefix=prefix,
        actual_seq_qlen=_numbers(actual_seq_qlen),
        actual_seq_kvlen=_numbers(actual_seq_kvlen),
        sparse_mode=sparse_mode,
        softmax_layout=softmax_layout,
        sink=sink,
    )
    return out, maximum, total, empty, torch.tensor(seed), torch.tensor(offset)


def _numbers(lengths: Tensor | Sequence[int] | None) -> Sequence[int] | None:
    return lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths


@golden("NPU.npu_attention_update")
def npu_attention_update(
    lse: Sequence[Tensor], local_out: Sequence[Tensor], update_type: int
) -> tuple[Tensor, Tensor | None]:
    """Merge attentions over parts of the keys: (sum of exp(lse_i - lse) out_i, lse = log of the sum of exp(lse_i)).

    ``lse`` are (n,) and ``local_out`` (n, d). With ``update_type`` 0 nothing is promised of the second, here None.
    """
    parts = torch.stack(list(lse))
    merged = parts.logsumexp(0)
    weights = torch.exp(parts - merged).unsqueeze(-1)
    out = (weights * torch.stack(list(local_out))).sum(0)
    return out, merged if update_type == 1 else None


@golden("NPU.npu_ring_attention_update", OpInfo(constraint=selected_keys.ring_attention))
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
        by_head = [part.permute(2, 0, 1).unsqueeze(-1) for part in (first, second)]
        previous, current = (torch.unflatten(part, -1, (heads, -1)) for part in (prev_attn_out, cur_attn_out))
        merged = (previous * by_head[0] + current * by_head[1]).flatten(-2)
        return merged.to(prev_attn_out.dtype), maximum, total
    if input_softmax_layout != "TND":
        if actual_seq_qlen is None:
            raise ValueError("input_layout TND of npu_ring_attention_update needs actual_seq_qlen")
        first, second = (_by_token(part, actual_seq_qlen.tolist()) for part in (first, second))
    merged = prev_attn_out * first.unsqueeze(-1) + cur_attn_out * second.unsqueeze(-1)
    return merged.to(prev_attn_out.dtype), maximum, total


def _by_token(statistic: Tensor, ends: list[int]) -> Tensor:
    """Order (T, N) numbers, of each sequence head by head, token by token."""
    heads, flat, start, parts = statistic.shape[1], statistic.flatten(), 0, []
    for end in (*ends, len(statistic)):
        parts.append(flat[start * heads : end * heads].reshape(heads, -1).T)
        start = max(start, end)
    return torch.cat(parts)


@golden("NPU.npu_masked_softmax_with_rel_pos_bias")
def npu_masked_softmax_with_rel_pos_bias(
    x: Tensor,
    atten_mask: Tensor | None,
    relative_pos_bias: Tensor,
    scale_value: float = 1.0,
    inner_precision_mode: int = 0,
) -> Tensor:
    """Return softmax(scale_value x + atten_mask + relative_pos_bias) over the last dimension, of windows (Swin).

    ``x`` is (B, W, N, S1, S2) or (B W, N, S1, S2), ``atten_mask`` W matrices, (W, S1, S2) or with ones for other
    dimensions, ``relative_pos_bias`` N, likewise. ``inner_precision_mode`` is a matter of the device's precision.
    """
    scores = x * scale_value + relative_pos_bias.reshape(-1, *relative_pos_bias.shape[-2:])
    if atten_mask is not None:
        masks = atten_mask.reshape(-1, 1, *atten_mask.shape[-2:])
        windows = scores.reshape(-1, len(masks), *x.shape[-3:])
        scores = (windows + masks).reshape(x.shape)
    return torch.softmax(scores, -1)


@golden("NPU.npu_attn_softmax_")
def npu_attn_softmax_(self: Tensor) -> Tensor:
    """Return softmax over the last dimension, written into ``self``."""
    return self.copy_(torch.softmax(self, -1))


@golden("NPU.npu_attn_softmax_backward_", recorded=False)
def npu_attn_softmax_backward_(self: Tensor, grad_output: Tensor, values: Tensor) -> Tensor:
    """Return the gradient of the scores, written into ``self``, which holds the weights of :func:`npu_attn_softmax_`.

    ``grad_output`` (B, Sq, D) is that of the weights times ``values`` (B, Skv, D).
    """
    of_weights = grad_output @ values.mT
    return self.copy_(self * (of_weights - (of_weights * self).sum(-1, keepdim=True)))


@golden(
    "NPU.npu_dropout_with_add_softmax",
    OpInfo(random=dropout_with_softmax, switch=probability_switch.probability("prob", 3)),
)
def npu_dropout_with_add_softmax(
    self: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return (mask, weights, dropout(weights)), weights = softmax(x1 + alpha self) along ``dim``.

    ``prob`` is the share that is dropped, as op-plugin's code and its callers take it; the documentation divides what
    is left by it. Only the last result has a gradient. The mask, a byte for each weight, is drawn above 0; at 0 it is
    None, for nothing is documented of it then.
    """
    weights = torch.softmax(x1 + alpha * self, dim)
    if prob == 0:
        return None, weights.detach(), weights
    mask = torch.empty(-(-weights.numel() // 128) * 128, dtype=torch.uint8).bernoulli_(1 - prob)
    return mask, weights.detach(), _kept(weights, mask, prob)


@golden("Aten.npu_dropout_with_add_softmax_backward")
def npu_dropout_with_add_softmax_backward(
    grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, None]:
    """Return (the gradient of self, None) of :func:`npu_dropout_with_add_softmax`.

    That of x1 would be it without ``alpha``; op-plugin returns ``grad`` itself for it, since masks need none, so that
    nothing is promised.
    """
    of_weights = _kept(grad, mask, prob)
    return alpha * softmax_out * (of_weights - (of_weights * softmax_out).sum(dim, keepdim=True)), None


def _kept(x: Tensor, mask: Tensor, prob: float) -> Tensor:
    """Return x / (1 - prob) where the bytes of a mask are not 0, otherwise 0."""
    return x * (mask.flatten()[: x.numel()] != 0).view(x.shape) / (1 - prob)
