"""Attention to selected blocks, to blocks of a mask, and to pairs of keys (Floyd)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import (
    attend_selected,
    gradients_of_selected,
    joined,
    numbers,
    sequences,
    times_selected,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


@golden("NPU.npu_block_sparse_attention")
def npu_block_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, block_sparse_mask: Tensor, block_shape: Sequence[int],
    *, q_input_layout: str = "TND", kv_input_layout: str = "TND", num_key_value_heads: int = 1,
    scale_value: float = 0.0, inner_precise: int = 1, actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None, softmax_lse_flag: int | None = 0,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return softmax(scale * q k^T) v between paired blocks, in the form of ``query``, and log(sum(exp(score))).

    ``query`` is (T1, N1, D) or (B, N1, S1, D), ``key`` and ``value`` the same of N2 heads. ``block_sparse_mask``
    (B, N1, blocks of queries, blocks of keys) is not 0 where a block of ``block_shape`` queries and keys is computed.
    Lengths are those of each sequence, for TND too. The logarithm is (T1, N1, 1) or (B, N1, S1, 1); nothing is promised
    of it without ``softmax_lse_flag``, here None. A query without keys gives 0, and -inf for the logarithm (assumed).

    Raises ValueError for TND without lengths, and NotImplementedError for another layout. ``inner_precise`` says what
    the device computes in.
    """
    api = "npu_block_sparse_attention"
    refuse(api, kv_input_layout=None if kv_input_layout == q_input_layout else kv_input_layout)
    of_queries = _tokens(api, query, q_input_layout, actual_seq_lengths)
    of_keys = [_tokens(api, operand, kv_input_layout, actual_seq_lengths_kv) for operand in (key, value)]
    parts = []
    for q, k, v, pairs in zip(of_queries, *of_keys, block_sparse_mask, strict=True):
        out, maximum, total = attend_selected(q, k, v, _paired(pairs, block_shape, len(q), len(k)), scale_value)
        parts.append((out, (maximum + torch.log(total)).unsqueeze(-1)))
    outs, logarithms = zip(*parts, strict=True)
    attended = _in_layout(outs, query, q_input_layout)
    if not softmax_lse_flag:
        return attended, None
    return attended, _in_layout(logarithms, query, q_input_layout, -torch.inf)


@golden("Aten.npu_block_sparse_attention_backward")
def npu_block_sparse_attention_backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attention_out: Tensor, softmax_lse: Tensor,
    block_sparse_mask: Tensor, block_shape: Sequence[int] | None, actual_seq_lengths: Sequence[int] | None,
    actual_seq_lengths_kv: Sequence[int] | None, q_input_layout: str, kv_input_layout: str,
    num_key_value_heads: int, scale_value: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_block_sparse_attention` for query, key and value.

    Weights are exp(score - ``softmax_lse``), as the forward saved it. Blocks are 128 by 128 without ``block_shape``,
    CANN's default. Raises what the forward does.
    """
    api = "npu_block_sparse_attention_backward"
    refuse(api, kv_input_layout=None if kv_input_layout == q_input_layout else kv_input_layout)
    of_queries = [
        _tokens(api, operand, q_input_layout, actual_seq_lengths)
        for operand in (query, d_out, attention_out, softmax_lse)
    ]
    of_keys = [_tokens(api, operand, kv_input_layout, actual_seq_lengths_kv) for operand in (key, value)]
    parts = []
    for q, arriving, out, logarithm, k, v, pairs in zip(*of_queries, *of_keys, block_sparse_mask, strict=True):
        paired = _paired(pairs, block_shape or (128, 128), len(q), len(k))
        exponent = logarithm.squeeze(-1)
        saved = (out, exponent, torch.ones_like(exponent))
        parts.append(gradients_of_selected(q, k, v, paired, scale_value, saved, arriving))
    of_query, of_key, of_value = (
        _in_layout(operand, input_tensor, layout)
        for operand, input_tensor, layout in zip(
            zip(*parts, strict=True),
            (query, key, value),
            (q_input_layout, kv_input_layout, kv_input_layout),
            strict=True,
        )
    )
    return of_query, of_key, of_value


def _tokens(api: str, tensor: Tensor, layout: str, lengths: Sequence[int] | None) -> list[Tensor]:
    """Return the tokens of each sequence, (S, N, D)."""
    counts = numbers(lengths)
    if layout == "TND":
        if not counts:
            raise ValueError(f"layout TND of {api} needs the lengths of sequences")
        return list(torch.split(tensor[: sum(counts)], counts))
    refuse(api, layout=None if layout == "BNSD" else layout)
    by_token = tensor.transpose(1, 2)
    return [
        sequence[:count] for sequence, count in zip(by_token, counts or [by_token.shape[1]] * len(tensor), strict=True)
    ]


def _in_layout(parts: Sequence[Tensor], like: Tensor, layout: str, fill: float = 0.0) -> Tensor:
    if layout == "TND":
        return joined(parts, len(like), "TND", fill)
    return joined(parts, like.shape[2], "BSND", fill).transpose(1, 2).contiguous()


def _paired(pairs: Tensor, shape: Sequence[int], queries: int, keys: int) -> Callable[[slice], Tensor]:
    """Return what gives for some queries which keys they see, (rows, N1, S2), of (N1, blocks, blocks) pairs."""
    of_keys = (pairs != 0).repeat_interleave(int(shape[1]), -1)[..., :keys]
    # (S1, N1, S2), with the queries in front
    block_of = torch.arange(queries) // int(shape[0])
    return lambda rows: of_keys[:, block_of[rows]].transpose(0, 1)


# the device repeats each row's maximum and sum to fill a 32-byte block of float32
_STATISTIC_COPIES = 8


@golden("NPU.npu_fused_floyd_attention")
def npu_fused_floyd_attention(
    query_ik: Tensor,
    key_ij: Tensor,
    value_ij: Tensor,
    key_jk: Tensor,
    value_jk: Tensor,
    *,
    atten_mask: Tensor | None = None,
    scale_value: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (maximum, sum, p value_ij + p value_jk), p = softmax over j of scale * (q_ik key_ij + q_ik key_jk).

    ``query_ik`` is (B, H, I, K, D), key and value ij (B, H, I, J, D), jk (B, H, J, K, D). ``atten_mask``
    (B, 1, I, 1, J) is true where j is hidden; where all are, the result is 0 (assumed). Maximum and sum of
    exp(score - maximum) are (B, H, I, K, 8), eight times each. Formulas of op-plugin's documentation.
    """
    weights, maximum, total = _exponentials(query_ik, key_ij, key_jk, atten_mask, scale_value)
    weights = weights / total.masked_fill(total == 0, 1.0)
    out = torch.einsum("bhikj,bhijc->bhikc", weights, value_ij) + torch.einsum("bhikj,bhjkc->bhikc", weights, value_jk)
    statistics = [
        at_least_float32(statistic.detach()).expand(*statistic.shape[:-1], _STATISTIC_COPIES)
        for statistic in (maximum, total)
    ]
    return statistics[0], statistics[1], out


@golden(
    "Aten.npu_fused_floyd_attention_backward",
    OpInfo(constraint=selected_keys.copied_statistics((7, "softmax_max"), (8, "softmax_sum"))),
)
def npu_fused_floyd_attention_backward(
    grad_output: Tensor, query_ik: Tensor, key_ij: Tensor, value_ij: Tensor, key_jk: Tensor, value_jk: Tensor,
    attention_out: Tensor, softmax_max: Tensor, softmax_sum: Tensor,
    *, atten_mask: Tensor | None = None, scale_value: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_fused_floyd_attention`, in the order of its tensors.

    Weights are exp(score - ``softmax_max``) / ``softmax_sum``, as the forward saved them.
    """
    scores = _scores(query_ik, key_ij, key_jk, atten_mask, scale_value)
    highest, divisor = (statistic[..., :1].to(scores.dtype) for statistic in (softmax_max, softmax_sum))
    p = torch.exp(scores - highest.masked_fill(divisor == 0, 0.0))
    p = p / divisor.masked_fill(divisor == 0, 1.0)
    of_p = torch.einsum("bhikc,bhijc->bhikj", grad_output, value_ij)
    of_p = of_p + torch.einsum("bhikc,bhjkc->bhikj", grad_output, value_jk)
    of_scores = p * (of_p - (grad_output * attention_out).sum(-1, keepdim=True)) * scale_value
    of_query = torch.einsum("bhikj,bhijc->bhikc", of_scores, key_ij)
    of_query = of_query + torch.einsum("bhikj,bhjkc->bhikc", of_scores, key_jk)
    return (
        of_query,
        torch.einsum("bhikj,bhikc->bhijc", of_scores, query_ik),
        torch.einsum("bhikj,bhikc->bhijc", p, grad_output),
        torch.einsum("bhikj,bhikc->bhjkc", of_scores, query_ik),
        torch.einsum("bhikj,bhikc->bhjkc", p, grad_output),
    )


def _scores(q: Tensor, k_ij: Tensor, k_jk: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    """Return the scores (B, H, I, K, J), -inf for what is hidden."""
    scores = torch.einsum("bhikc,bhijc->bhikj", q, k_ij) + torch.einsum("bhikc,bhjkc->bhikj", q, k_jk)
    scores = scores * scale
    return scores if hidden is None else scores.masked_fill(hidden.bool(), -torch.inf)


def _exponentials(
    q: Tensor, k_ij: Tensor, k_jk: Tensor, hidden: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp(score - maximum), and of each row maximum and sum, (B, H, I, K, 1)."""
    scores = _scores(q, k_ij, k_jk, hidden, scale)
    maximum = scores.detach().amax(-1, keepdim=True)
    weights = torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0))
    return weights, maximum, weights.sum(-1, keepdim=True)


# the device repeats each row's maximum and sum to fill a 32-byte block of float32


@golden("NPU.npu_nsa_select_attention", OpInfo(constraint=selected_keys.selected_blocks))
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
    of_queries = [sequences(api, operand, "TND", actual_seq_qlen) for operand in (query, topk_indices)]
    of_keys = [sequences(api, operand, "TND", actual_seq_kvlen) for operand in (key, value)]
    parts = [
        attend_selected(q, k, v, _blocks(selection, select_block_size, len(k)), scale_value)
        for q, selection, k, v in zip(*of_queries, *of_keys, strict=True)
    ]
    out, maximum, total = (joined(operand, len(query), "TND") for operand in zip(*parts, strict=True))
    return out, _copies(maximum), _copies(total)


@golden("Aten.npu_nsa_select_attention_grad", OpInfo(constraint=selected_keys.selected_blocks_gradient))
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
    of_queries = [sequences(api, operand, "TND", actual_seq_qlen) for operand in (query, topk_indices, grad, *saved)]
    of_keys = [sequences(api, operand, "TND", actual_seq_kvlen) for operand in (key, value)]
    parts = [
        gradients_of_selected(
            q, k, v, _blocks(selection, select_block_size, len(k)), scale_value, (out, maximum, total), arriving
        )
        for q, selection, arriving, out, maximum, total, k, v in zip(*of_queries, *of_keys, strict=True)
    ]
    of_query, of_key, of_value = (
        joined(operand, len(input_tensor), "TND")
        for operand, input_tensor in zip(zip(*parts, strict=True), (query, key, value), strict=True)
    )
    return of_query, of_key, of_value


@golden("NPU.npu_nsa_select_attention_infer", OpInfo(constraint=selected_keys.decoded_blocks))
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
    pages = [
        torch.unflatten(operand, -1, (key_value_head_num, -1)) if operand.dim() == 3 else operand
        for operand in (key, value)
    ]
    of_keys = [sequences(api, operand, "PA_BSND", actual_seq_kvlen, block_table) for operand in pages]
    queries = query.reshape(len(query), 1, head_num, -1)
    outs = [
        attend_selected(q, k, v, _blocks(selection.unsqueeze(0), select_block_size, len(k)), scale_value)[0]
        for q, selection, k, v in zip(queries, topk_indices, *of_keys, strict=True)
    ]
    out = torch.stack(outs)
    if layout == "TND":
        return out.squeeze(1)
    return out.flatten(-2) if layout == "BSH" else out


def _blocks(selection: Tensor, size: int, columns: int) -> Callable[[slice], Tensor]:
    """Return what gives for some queries how often they see each key, (rows, N2, S2)."""
    return lambda rows: times_selected(selection[rows], size, columns)


def _copies(statistic: Tensor) -> Tensor:
    return statistic.unsqueeze(-1).expand(*statistic.shape, _STATISTIC_COPIES)
