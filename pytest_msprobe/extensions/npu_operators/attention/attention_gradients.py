"""Gradients of the later versions of fused attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.attention.attention import npu_fusion_attention
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import Lengths

# CANN's default, the greatest int32: every earlier or later token is attended to.
_UNLIMITED = 2147483647


def npu_fusion_attention_grad_v2(
    query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None, softmax_sum: Tensor | None = None, softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None, query_rope: Tensor | None = None, key_rope: Tensor | None = None,
    scale_value: float = 1.0, keep_prob: float = 1.0, pre_tokens: int = _UNLIMITED,
    next_tokens: int = _UNLIMITED, inner_precise: int = 0, seed: int = 0, offset: int = 0, numels: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False, pse_type: int = 1, q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None, softmax_layout: str = "", sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of npu_fusion_attention_v2: query, key, value, pse, both ropes and sink.

    Those of what was not given are None. Ropes (TND) are further dimensions of queries and keys; ``pse_type`` 0 adds
    pse to the scaled product. The forward's saved statistics and output are not read: everything follows from the
    inputs. Raises what the forward does, and NotImplementedError for ``keep_prob`` below 1, whose mask only the device
    can rebuild, for ropes in another layout and for the types that make pse themselves (2 and 3).
    """
    api = "npu_fusion_attention_grad_v2"
    roped = query_rope is not None and key_rope is not None
    refuse(
        api,
        keep_prob=keep_prob if keep_prob < 1 else None,
        query_rope=query_rope if roped and input_layout.upper() != "TND" else None,
        pse_type=None if pse_type in (0, 1) else pse_type,
        q_start_idx=q_start_idx or None,
        kv_start_idx=kv_start_idx or None,
    )
    given = (query, key, value, pse, query_rope if roped else None, key_rope if roped else None, sink)

    def attention(leaves: list[Tensor | None]) -> Tensor:
        q, k, v, bias, q_rope, k_rope, more = leaves
        assert q is not None
        assert k is not None
        assert v is not None
        if q_rope is not None and k_rope is not None:
            q, k = torch.cat([q, q_rope], -1), torch.cat([k, k_rope], -1)
        return npu_fusion_attention(
            q,
            k,
            v,
            head_num,
            input_layout,
            pse=bias / scale_value if bias is not None and pse_type == 0 else bias,
            padding_mask=padding_mask,
            atten_mask=atten_mask,
            scale=scale_value,
            pre_tockens=pre_tokens,
            next_tockens=next_tokens,
            prefix=prefix,
            actual_seq_qlen=actual_seq_qlen,
            actual_seq_kvlen=actual_seq_kvlen,
            sparse_mode=sparse_mode,
            sink=more,
        )[0]

    of_query, of_key, of_value, of_pse, of_q_rope, of_k_rope, of_sink = _gradients(attention, given, dy)
    assert of_query is not None
    assert of_key is not None
    assert of_value is not None
    return of_query, of_key, of_value, of_pse, of_q_rope, of_k_rope, of_sink


def npu_fusion_attention_grad_v3(
    query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None, softmax_sum: Tensor | None = None, softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None, scale_value: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = _UNLIMITED, next_tockens: int = _UNLIMITED, inner_precise: int = 0,
    seed: Tensor | None = None, offset: Tensor | None = None, prefix: Sequence[int] | None = None,
    actual_seq_qlen: Lengths = None, actual_seq_kvlen: Lengths = None, sparse_mode: int = 0,
    gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "", sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of npu_fusion_attention_v3 for query, key, value, pse and sink, as version 2 does."""
    lengths = [None if each is None else [int(end) for end in each] for each in (actual_seq_qlen, actual_seq_kvlen)]
    of_query, of_key, of_value, of_pse, _, _, of_sink = npu_fusion_attention_grad_v2(
        query,
        key,
        value,
        dy,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale_value=scale_value,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        prefix=prefix,
        actual_seq_qlen=lengths[0],
        actual_seq_kvlen=lengths[1],
        sparse_mode=sparse_mode,
        sink=sink,
    )
    return of_query, of_key, of_value, of_pse, of_sink


def _gradients(
    function: Callable[[list[Tensor | None]], Tensor], given: Sequence[Tensor | None], arriving: Tensor
) -> list[Tensor | None]:
    """Return the gradients of a function for each of the tensors given, None for None."""
    with torch.enable_grad():
        leaves = [None if each is None else each.detach().requires_grad_() for each in given]
        wanted = [each for each in leaves if each is not None]
        found = iter(torch.autograd.grad(function(leaves), wanted, arriving))
    return [None if each is None else next(found) for each in leaves]
