"""Attention of earlier versions of torch_npu: scores alone, with layer normalization, and of several heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.random_apis import attention_dropout, probability_switch
from pytest_msprobe.engine.replay.random_apis.random_property import REQUIRED, Form, Parameters, RandomProperty, bound
from pytest_msprobe.engine.replay.random_apis.unverifiable import UnjudgedProperty, average_of
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.attention_core import BATCHED_LAYOUTS, in_layout
from pytest_msprobe.extensions.npu_operators.layers.drawn_results import npu_dropout_backward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Three = tuple[Tensor, Tensor, Tensor]

_ATTENTION_SCORE: Parameters = (
    ("query_layer", REQUIRED), ("key_layer", REQUIRED), ("value_layer", REQUIRED), ("attention_mask", REQUIRED),
    ("scale", REQUIRED), ("keep_prob", REQUIRED),
)  # fmt: skip


def _attention_score(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_fused_attention_score`` with ``keep_prob`` below 1, heads merged in its result."""
    given = bound(api, _ATTENTION_SCORE, args, kwargs)
    keep, value = float(given["keep_prob"]), given["value_layer"]
    batch, heads, rows, size = given["query_layer"].shape
    return None if keep == 1 else average_of(value, keep, Form((batch * rows, heads * size)))


def _attention_layer(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_multi_head_attention`` that draws what it drops, as no mask is given."""
    mask = args[12] if len(args) > 12 else kwargs.get("dropout_mask")
    share = args[17] if len(args) > 17 else kwargs["dropout_prob"]
    if mask is not None or not share:
        return None
    return UnjudgedProperty("dropout inside an attention layer: no property of its result is known")


_SCORES_WITH_DROPOUT = OpInfo(
    random=_attention_score,
    switch=probability_switch.probability("keep_prob", 5, 1.0),
    readable=attention_dropout.readable_score,
)

_MERGED = BATCHED_LAYOUTS[0]


@golden("NPU.npu_fused_attention_score", _SCORES_WITH_DROPOUT)
def npu_fused_attention_score(
    query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Tensor, scale: float,
    keep_prob: float, query_transpose: bool = False, key_transpose: bool = False,
    bmm_score_transpose_a: bool = False, bmm_score_transpose_b: bool = False, value_transpose: bool = False,
    dx_transpose: bool = False,
) -> Tensor:  # fmt: skip
    """Return dropout(softmax(scale q k^T + mask)) v, heads merged: (B S, N D) of q, k and v (B, N, S, D).

    With ``keep_prob`` below 1 weights are dropped at random and the rest divided by it. The formula is that of
    op-plugin's tests. Raises NotImplementedError for a transposition: no meaning for the data is documented.
    """
    _refuse_transposed(
        query_transpose=query_transpose,
        key_transpose=key_transpose,
        bmm_score_transpose_a=bmm_score_transpose_a,
        bmm_score_transpose_b=bmm_score_transpose_b,
        value_transpose=value_transpose,
        dx_transpose=dx_transpose,
    )
    weights = _weights(query_layer, key_layer, attention_mask, scale)
    if keep_prob < 1:
        weights = F.dropout(weights, 1 - keep_prob)
    return in_layout(weights @ value_layer, _MERGED).flatten(0, 1)


@golden("NPU.npu_fused_attention_score_fwd", _SCORES_WITH_DROPOUT)
def npu_fused_attention_score_fwd(
    query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Tensor, scale: float,
    keep_prob: float, query_transpose: bool = False, key_transpose: bool = False,
    bmm_score_transpose_a: bool = False, bmm_score_transpose_b: bool = False, value_transpose: bool = False,
    dx_transpose: bool = False,
) -> Three:  # fmt: skip
    """Return (:func:`npu_fused_attention_score`, the weights before dropout (B, N, S, S), the mask).

    The mask has a byte for each weight, 1 where it is kept: with ``keep_prob`` 1 all are.
    """
    _refuse_transposed(
        query_transpose=query_transpose,
        key_transpose=key_transpose,
        bmm_score_transpose_a=bmm_score_transpose_a,
        bmm_score_transpose_b=bmm_score_transpose_b,
        value_transpose=value_transpose,
        dx_transpose=dx_transpose,
    )
    weights = _weights(query_layer, key_layer, attention_mask, scale)
    mask = torch.ones(weights.numel(), dtype=torch.uint8)
    if keep_prob < 1:
        mask.bernoulli_(keep_prob)
    context = _dropped(weights, mask, keep_prob) @ value_layer
    return in_layout(context, _MERGED).flatten(0, 1), weights.detach(), mask


@golden("NPU.npu_fused_attention_score_grad", recorded=False)
def npu_fused_attention_score_grad(
    grad_output: Tensor, softmax_output: Tensor, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor,
    mask: Tensor, scale: float, keep_prob: float, query_transpose: bool = False, key_transpose: bool = False,
    value_transpose: bool = False, dx_transpose: bool = False,
) -> Three:  # fmt: skip
    """Return the gradients of :func:`npu_fused_attention_score_fwd` for q, k and v, each (B S, N D)."""
    _refuse_transposed(
        query_transpose=query_transpose,
        key_transpose=key_transpose,
        value_transpose=value_transpose,
        dx_transpose=dx_transpose,
    )
    gradients = _gradients(grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob)
    query, key, value = (in_layout(gradient, _MERGED).flatten(0, 1) for gradient in gradients)
    return query, key, value


@golden("Aten.npu_fused_attention_score_backward")
def npu_fused_attention_score_backward(
    grad_output: Tensor, softmax_output: Tensor, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor,
    mask: Tensor, scale: float, keep_prob: float, query_transpose: bool = False, key_transpose: bool = False,
    value_transpose: bool = False, dx_transpose: bool = False,
) -> Three:  # fmt: skip
    """Return the gradients of :func:`npu_fused_attention_score_fwd` for q, k and v, each in its shape."""
    _refuse_transposed(
        query_transpose=query_transpose,
        key_transpose=key_transpose,
        value_transpose=value_transpose,
        dx_transpose=dx_transpose,
    )
    return _gradients(grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob)


@golden("NPU.npu_fused_attention_layernorm_qkv_fwd")
def npu_fused_attention_layernorm_qkv_fwd(
    x: Tensor, kernel_query: Tensor, kernel_key: Tensor, kernel_value: Tensor, gamma: Tensor, beta: Tensor,
    bias_query: Tensor | None = None, bias_key: Tensor | None = None, bias_value: Tensor | None = None,
    seq_len: int = 128, num_heads: int = 12, eps: float = 1e-05,
) -> list[Tensor]:  # fmt: skip
    """Return [norm, query, key, value, mean, variance] of a layer norm and three projections.

    ``x`` is (B S, H), norm too; norm times a kernel (H, H) plus its bias gives (B, N, S, H / N); mean and variance
    are (B S). Assumed: the variance is the biased one, not its root.
    """
    mean, variance = x.mean(-1), x.var(-1, unbiased=False)
    norm = F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
    heads = []
    for kernel, bias in ((kernel_query, bias_query), (kernel_key, bias_key), (kernel_value, bias_value)):
        projected = norm @ kernel if bias is None else norm @ kernel + bias
        heads.append(projected.view(-1, seq_len, num_heads, x.shape[1] // num_heads).transpose(1, 2))
    return [norm, *heads, mean.detach(), variance.detach()]


@golden("NPU.npu_fused_attention_qkv_grad", recorded=False)
def npu_fused_attention_qkv_grad(
    grad_output_query: Tensor,
    grad_output_key: Tensor,
    grad_output_value: Tensor,
    query_kernel: Tensor,
    key_kernel: Tensor,
    value_kernel: Tensor,
    hidden_states: Tensor,
    grad_output_ln: Tensor,
) -> list[Tensor]:
    """Return the gradients of three projections of ``hidden_states`` (rows, H): of it, the kernels and the biases.

    ``grad_output_ln`` is what else arrives at the hidden states, and is added to theirs.
    """
    grads = (grad_output_query, grad_output_key, grad_output_value)
    kernels = (query_kernel, key_kernel, value_kernel)
    hidden = grad_output_ln + sum(grad @ kernel.T for grad, kernel in zip(grads, kernels, strict=True))
    return [hidden, *(hidden_states.T @ grad for grad in grads), *(grad.sum(0) for grad in grads)]


def _refuse_transposed(**switches: bool) -> None:
    refuse("npu_fused_attention_score", **{name: on or None for name, on in switches.items()})


def _weights(query: Tensor, key: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.softmax(query @ key.mT * scale + mask, -1)


def _dropped(weights: Tensor, mask: Tensor, keep_prob: float) -> Tensor:
    return weights * mask[: weights.numel()].view(weights.shape) / keep_prob


def _gradients(
    grad: Tensor, weights: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, keep: float
) -> Three:
    batch, heads, rows, size = query.shape
    incoming = grad.reshape(batch, rows, heads, size).transpose(1, 2)
    of_weights = _dropped(incoming @ value.mT, mask, keep)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    return of_scores @ key, of_scores.mT @ query, _dropped(weights, mask, keep).mT @ incoming


@golden(
    "NPU.npu_multi_head_attention",
    OpInfo(random=_attention_layer, switch=probability_switch.probability("dropout_prob", 17)),
)
def npu_multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, query_weight: Tensor, key_weight: Tensor, value_weight: Tensor,
    attn_mask: Tensor, out_proj_weight: Tensor, query_bias: Tensor | None, key_bias: Tensor | None,
    value_bias: Tensor | None, out_proj_bias: Tensor | None, dropout_mask: Tensor | None, attn_head_num: int,
    attn_dim_per_head: int, src_len: int, tgt_len: int, dropout_prob: float, softmax_use_float: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
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


@golden("Aten.npu_multi_head_attention_backward")
def npu_multi_head_attention_backward(
    query: Tensor, key: Tensor, value: Tensor, query_weight: Tensor, key_weight: Tensor, value_weight: Tensor,
    out_proj_weight: Tensor, query_bias: Tensor | None, key_bias: Tensor | None, value_bias: Tensor | None,
    out_proj_bias: Tensor | None, query_res: Tensor, key_res: Tensor, value_res: Tensor, attn_scores: Tensor,
    attn_res: Tensor, context: Tensor, y_grad: Tensor, dropout_mask: Tensor, attn_head_num: int,
    attn_dim_per_head: int, src_len: int, tgt_len: int, dropout_prob: float, softmax_use_float: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
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
