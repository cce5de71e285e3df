"""Later versions of fused attention, and the merging of partial ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.references.attention.attention import npu_fusion_attention
from pytest_msprobe.engine.replay.references.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_fusion_attention_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    """Return :func:`npu_fusion_attention` of the arguments, of which a few have other names.

    ``pse_type`` 1 scales what q k^T + pse gives, 0 adds pse to the scaled q k^T. Raises what that does, and
    NotImplementedError for the types that make pse themselves (2 and 3) and for ``query_rope`` and ``key_rope``.
    """
    refuse(
        "npu_fusion_attention_v2",
        query_rope=query_rope,
        key_rope=key_rope,
        pse_type=None if pse_type in (0, 1) else pse_type,
        q_start_idx=q_start_idx or None,
        kv_start_idx=kv_start_idx or None,
    )
    bias = pse / scale if pse is not None and pse_type == 0 else pse
    return npu_fusion_attention(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=bias,
        scale=scale,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        **options,
    )


def npu_fusion_attention_v3(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what :func:`npu_fusion_attention` does, seed and offset as tensors and without the number of scores."""
    for name in ("actual_seq_qlen", "actual_seq_kvlen"):
        if isinstance(kwargs.get(name), torch.Tensor):
            kwargs[name] = kwargs[name].tolist()
    out, maximum, total, empty, seed, offset, _ = npu_fusion_attention(*args, **kwargs)
    return out, maximum, total, empty, torch.tensor(seed), torch.tensor(offset)


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
