"""A whole layer of attention in one operator: projections, softmax, dropout and the projection of the context."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.layers.dropout_mask import npu_dropout_backward


def npu_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    attn_mask: Tensor,
    out_proj_weight: Tensor,
    query_bias: Tensor | None,
    key_bias: Tensor | None,
    value_bias: Tensor | None,
    out_proj_bias: Tensor | None,
    dropout_mask: Tensor | None,
    attn_head_num: int,
    attn_dim_per_head: int,
    src_len: int,
    tgt_len: int,
    dropout_prob: float,
    softmax_use_float: bool,
) -> tuple[Tensor | None, ...]:
    """Return (y, dropout_mask, query_res, key_res, value_res, attn_scores, attn_res, context).

    ``query`` is (B tgt_len, N D), ``key`` and ``value`` are (B src_len, N D), the weights torch's (N D, N D). The
    query's projection times 1 / sqrt(D), query_res, and those of key and value, (B, N, len, D), give attn_scores, the
    softmax of q k^T + ``attn_mask``; attn_res is what dropout leaves of it, context (B tgt_len, N D) is attn_res v,
    and y its projection (op-plugin's tests). Only y has a gradient. ``softmax_use_float`` is a matter of precision.

    ``dropout_prob`` is the share that is dropped, as op-plugin's code and tests take it, not the documentation. Above
    0 the weights are dropped by ``dropout_mask``, assumed to be bits, or without it at random. The resulting mask is
    None: which bits it holds where nothing is dropped, or where it was given, is not documented.
    """
    q = _projected(query, query_weight, query_bias, tgt_len, attn_head_num) * attn_dim_per_head**-0.5
    k = _projected(key, key_weight, key_bias, src_len, attn_head_num)
    v = _projected(value, value_weight, value_bias, src_len, attn_head_num)
    scores = torch.softmax(q @ k.mT + attn_mask, -1)
    weights = scores
    if dropout_prob > 0 and dropout_mask is not None:
        weights = npu_dropout_backward(scores, dropout_mask, dropout_prob)
    elif dropout_prob > 0:
        weights = torch.nn.functional.dropout(scores, dropout_prob)
    context = _merged(weights @ v)
    y = context @ out_proj_weight.T
    if out_proj_bias is not None:
        y = y + out_proj_bias
    return y, None, *(saved.detach() for saved in (q, k, v, scores, weights, context))


def npu_multi_head_attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    out_proj_weight: Tensor,
    query_bias: Tensor | None,
    key_bias: Tensor | None,
    value_bias: Tensor | None,
    out_proj_bias: Tensor | None,
    query_res: Tensor,
    key_res: Tensor,
    value_res: Tensor,
    attn_scores: Tensor,
    attn_res: Tensor,
    context: Tensor,
    y_grad: Tensor,
    dropout_mask: Tensor,
    attn_head_num: int,
    attn_dim_per_head: int,
    src_len: int,
    tgt_len: int,
    dropout_prob: float,
    softmax_use_float: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of :func:`npu_multi_head_attention`: four weights, query, key, value, four biases (1, N D).

    They follow from the forward's results. That of a bias is None where there is none.
    """
    incoming = _split(y_grad @ out_proj_weight, tgt_len, attn_head_num)
    of_weights = incoming @ value_res.mT
    if dropout_prob > 0:
        of_weights = npu_dropout_backward(of_weights, dropout_mask, dropout_prob)
    of_scores = attn_scores * (of_weights - (of_weights * attn_scores).sum(-1, keepdim=True))
    of_query = _merged(of_scores @ key_res) * attn_dim_per_head**-0.5
    of_key, of_value = _merged(of_scores.mT @ query_res), _merged(attn_res.mT @ incoming)
    projected = (of_query, of_key, of_value, y_grad)
    sources = (query, key, value, context)
    weights = (query_weight, key_weight, value_weight)
    biases = (query_bias, key_bias, value_bias, out_proj_bias)
    return (
        *(grad.T @ source for grad, source in zip(projected, sources, strict=True)),
        *(grad @ weight for grad, weight in zip(projected[:3], weights, strict=True)),
        *(None if bias is None else grad.sum(0, keepdim=True) for grad, bias in zip(projected, biases, strict=True)),
    )


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None, rows: int, heads: int) -> Tensor:
    projected = x @ weight.T
    return _split(projected if bias is None else projected + bias, rows, heads)


def _split(x: Tensor, rows: int, heads: int) -> Tensor:
    """Reshape (B rows, N D) into (B, N, rows, D)."""
    return x.reshape(-1, rows, heads, x.shape[1] // heads).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    """Reshape (B, N, rows, D) into (B rows, N D)."""
    return x.transpose(1, 2).flatten(2).flatten(0, 1)
