"""Attention between blocks of queries and of keys that a mask pairs, forward and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.sparse_attention.selected_attention import (
    attend_selected,
    gradients_of_selected,
)
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import joined, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


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
    of_keys = [_tokens(api, each, kv_input_layout, actual_seq_lengths_kv) for each in (key, value)]
    parts = []
    for q, k, v, pairs in zip(of_queries, *of_keys, block_sparse_mask, strict=True):
        out, maximum, total = attend_selected(q, k, v, _paired(pairs, block_shape, len(q), len(k)), scale_value)
        parts.append((out, (maximum + torch.log(total)).unsqueeze(-1)))
    outs, logarithms = zip(*parts, strict=True)
    attended = _in_layout(outs, query, q_input_layout)
    if not softmax_lse_flag:
        return attended, None
    return attended, _in_layout(logarithms, query, q_input_layout, -torch.inf)


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
        _tokens(api, each, q_input_layout, actual_seq_lengths) for each in (query, d_out, attention_out, softmax_lse)
    ]
    of_keys = [_tokens(api, each, kv_input_layout, actual_seq_lengths_kv) for each in (key, value)]
    parts = []
    for q, arriving, out, logarithm, k, v, pairs in zip(*of_queries, *of_keys, block_sparse_mask, strict=True):
        paired = _paired(pairs, block_shape or (128, 128), len(q), len(k))
        exponent = logarithm.squeeze(-1)
        saved = (out, exponent, torch.ones_like(exponent))
        parts.append(gradients_of_selected(q, k, v, paired, scale_value, saved, arriving))
    of_query, of_key, of_value = (
        _in_layout(each, given, layout)
        for each, given, layout in zip(
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
    return [each[:count] for each, count in zip(by_token, counts or [by_token.shape[1]] * len(tensor), strict=True)]


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
