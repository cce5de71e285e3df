"""Native sparse attention (Yuan et al., 2025): to the keys of selected blocks, forward, gradient and decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.sparse_attention.selected_attention import (
    attend_selected,
    gradients_of_selected,
)
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import joined, sequences, times_selected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

# the device repeats each row's maximum and sum to fill a 32-byte block of float32
_STATISTIC_COPIES = 8


def npu_nsa_select_attention(
    query: Tensor, key: Tensor, value: Tensor, topk_indices: Tensor, scale_value: float, head_num: int,
    select_block_size: int, select_block_count: int,
    *, atten_mask: Tensor | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (softmax(scale * q k^T) v over the keys of selected blocks, maximum and sum of each row's scores).

    ``query`` is (T1, N1, D), ``key`` (T2, N2, D), ``value`` (T2, N2, Dv), lengths are the ends of sequences.
    ``topk_indices`` (T1, N2, count) are blocks of ``select_block_size`` keys of the query's sequence; a negative one
    ends them. Attention is (T1, N1, Dv); maximum and sum of exp(score - maximum) are (T1, N1, 8), eight times each,
    token by token (assumed; op-plugin documents no order).

    Raises ValueError without lengths, and NotImplementedError for ``atten_mask``, which op-plugin documents as not
    supported.
    """
    api = "npu_nsa_select_attention"
    refuse(api, atten_mask=atten_mask)
    of_queries = [sequences(api, each, "TND", actual_seq_qlen) for each in (query, topk_indices)]
    of_keys = [sequences(api, each, "TND", actual_seq_kvlen) for each in (key, value)]
    parts = [
        attend_selected(q, k, v, _blocks(chosen, select_block_size, len(k)), scale_value)
        for q, chosen, k, v in zip(*of_queries, *of_keys, strict=True)
    ]
    out, maximum, total = (joined(each, len(query), "TND") for each in zip(*parts, strict=True))
    return out, _copies(maximum), _copies(total)


def npu_nsa_select_attention_grad(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attention_out: Tensor, softmax_max: Tensor,
    softmax_sum: Tensor, topk_indices: Tensor, scale_value: float, head_num: int, select_block_size: int,
    select_block_count: int,
    *, atten_mask: Tensor | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_nsa_select_attention` for query, key and value.

    Weights are exp(score - ``softmax_max``) / ``softmax_sum``, as the forward saved them. Raises what the forward does.
    """
    api = "npu_nsa_select_attention_grad"
    refuse(api, atten_mask=atten_mask)
    saved = (attention_out, softmax_max[..., 0], softmax_sum[..., 0])
    of_queries = [sequences(api, each, "TND", actual_seq_qlen) for each in (query, topk_indices, grad, *saved)]
    of_keys = [sequences(api, each, "TND", actual_seq_kvlen) for each in (key, value)]
    parts = [
        gradients_of_selected(
            q, k, v, _blocks(chosen, select_block_size, len(k)), scale_value, (out, maximum, total), arriving
        )
        for q, chosen, arriving, out, maximum, total, k, v in zip(*of_queries, *of_keys, strict=True)
    ]
    of_query, of_key, of_value = (
        joined(each, len(given), "TND")
        for each, given in zip(zip(*parts, strict=True), (query, key, value), strict=True)
    )
    return of_query, of_key, of_value


def npu_nsa_select_attention_infer(
    query: Tensor, key: Tensor, value: Tensor, topk_indices: Tensor, scale_value: float, head_num: int,
    key_value_head_num: int, select_block_size: int, select_block_count: int, page_block_size: int,
    *, layout: str = "BSND", atten_mask: Tensor | None = None, block_table: Tensor | None = None,
    actual_seq_qlen: Sequence[int] | None = None, actual_seq_kvlen: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Return :func:`npu_nsa_select_attention`'s attention of one query for each sequence, in the form of ``query``.

    ``query`` is (B, 1, N1, D), for BSH (B, 1, N1 * D), for TND (B, N1, D). ``key`` and ``value`` are pages of a cache,
    (pages, page size, N2, D) or (pages, page size, N2 * D), of which a row of ``block_table`` says which are a
    sequence's; ``actual_seq_kvlen`` are lengths. ``topk_indices`` are (B, N2, count).

    Raises ValueError without table or lengths, and NotImplementedError for ``atten_mask`` and ``actual_seq_qlen`` (of
    more than one token each), which op-plugin documents as not supported, and for another layout.
    """
    api = "npu_nsa_select_attention_infer"
    several = [length for length in actual_seq_qlen or () if length != 1] or None
    refuse(
        api,
        atten_mask=atten_mask,
        actual_seq_qlen=several,
        layout=None if layout in ("BSND", "BSH", "TND") else layout,
    )
    if actual_seq_kvlen is None:
        raise ValueError(f"{api} needs actual_seq_kvlen")
    pages = [torch.unflatten(each, -1, (key_value_head_num, -1)) if each.dim() == 3 else each for each in (key, value)]
    of_keys = [sequences(api, each, "PA_BSND", actual_seq_kvlen, block_table) for each in pages]
    queries = query.reshape(len(query), 1, head_num, -1)
    outs = [
        attend_selected(q, k, v, _blocks(chosen.unsqueeze(0), select_block_size, len(k)), scale_value)[0]
        for q, chosen, k, v in zip(queries, topk_indices, *of_keys, strict=True)
    ]
    out = torch.stack(outs)
    if layout == "TND":
        return out.squeeze(1)
    return out.flatten(-2) if layout == "BSH" else out


def _blocks(chosen: Tensor, size: int, columns: int) -> Callable[[slice], Tensor]:
    """Return what gives for some queries how often they see each key, (rows, N2, S2)."""
    return lambda rows: times_selected(chosen[rows], size, columns)


def _copies(statistic: Tensor) -> Tensor:
    return statistic.unsqueeze(-1).expand(*statistic.shape, _STATISTIC_COPIES)
