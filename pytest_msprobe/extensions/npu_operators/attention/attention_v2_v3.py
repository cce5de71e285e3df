"""Later versions of fused attention, and the merging of partial ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.attention.attention import npu_fusion_attention
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# CANN's default, the greatest int32: every earlier or later token is attended to.
_UNLIMITED = 2147483647


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
