"""Attention of BERT as it was fused first: the scores with their context, and the projections before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.attention.attention_core import BATCHED_LAYOUTS, in_layout
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    Three = tuple[Tensor, Tensor, Tensor]

_MERGED = BATCHED_LAYOUTS[0]


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
    kept = torch.ones(weights.numel(), dtype=torch.uint8)
    if keep_prob < 1:
        kept.bernoulli_(keep_prob)
    context = _dropped(weights, kept, keep_prob) @ value_layer
    return in_layout(context, _MERGED).flatten(0, 1), weights.detach(), kept


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
    found = _gradients(grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob)
    query, key, value = (in_layout(each, _MERGED).flatten(0, 1) for each in found)
    return query, key, value


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


def _dropped(weights: Tensor, kept: Tensor, keep_prob: float) -> Tensor:
    return weights * kept[: weights.numel()].view(weights.shape) / keep_prob


def _gradients(
    grad: Tensor, weights: Tensor, query: Tensor, key: Tensor, value: Tensor, kept: Tensor, scale: float, keep: float
) -> Three:
    batch, heads, rows, size = query.shape
    incoming = grad.reshape(batch, rows, heads, size).transpose(1, 2)
    of_weights = _dropped(incoming @ value.mT, kept, keep)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    return of_scores @ key, of_scores.mT @ query, _dropped(weights, kept, keep).mT @ incoming
