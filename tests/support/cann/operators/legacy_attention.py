"""The NPU's first fused attentions: one head after the other, gradients written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def npu_fused_attention_score(
    query_layer: Tensor,
    key_layer: Tensor,
    value_layer: Tensor,
    attention_mask: Tensor,
    scale: float,
    keep_prob: float,
    *switches: bool,
    **more: bool,
) -> Tensor:
    return npu_fused_attention_score_fwd(query_layer, key_layer, value_layer, attention_mask, scale, keep_prob)[0]


def npu_fused_attention_score_fwd(
    query_layer: Tensor,
    key_layer: Tensor,
    value_layer: Tensor,
    attention_mask: Tensor,
    scale: float,
    keep_prob: float,
    *switches: bool,
    **more: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, rows, size = query_layer.shape
    kept = (torch.rand(batch * heads * rows * rows) < keep_prob).to(torch.uint8)
    bias = attention_mask.double().expand(batch, heads, rows, rows)
    context = torch.empty(batch, rows, heads, size, dtype=torch.float64)
    weights = torch.empty(batch, heads, rows, rows, dtype=torch.float64)
    drawn = kept.view(weights.shape).double() / max(keep_prob, 1e-30)
    for b in range(batch):
        for n in range(heads):
            q, k, v = (x[b, n].double() for x in (query_layer, key_layer, value_layer))
            weights[b, n] = _softmax(scale * torch.mm(q, k.T) + bias[b, n])
            context[b, :, n] = torch.mm(weights[b, n] * drawn[b, n], v)
    dtype = query_layer.dtype
    return context.view(batch * rows, heads * size).to(dtype), weights.to(dtype), kept


def npu_fused_attention_score_backward(
    grad_output: Tensor,
    softmax_output: Tensor,
    query_layer: Tensor,
    key_layer: Tensor,
    value_layer: Tensor,
    mask: Tensor,
    scale: float,
    keep_prob: float,
    *switches: bool,
    **more: bool,
) -> tuple[Tensor, ...]:
    batch, heads, rows, size = query_layer.shape
    drawn = mask[: softmax_output.numel()].view(softmax_output.shape).double() / keep_prob
    grads = [torch.empty(query_layer.shape, dtype=torch.float64) for _ in range(3)]
    for b in range(batch):
        for n in range(heads):
            q, k, v, p = (x[b, n].double() for x in (query_layer, key_layer, value_layer, softmax_output))
            incoming = grad_output.double().view(batch, rows, heads, size)[b, :, n]
            jacobian = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
            of_scores = torch.einsum("rij,rj->ri", jacobian, torch.mm(incoming, v.T) * drawn[b, n]) * scale
            grads[0][b, n], grads[1][b, n] = torch.mm(of_scores, k), torch.mm(of_scores.T, q)
            grads[2][b, n] = torch.mm((p * drawn[b, n]).T, incoming)
    return tuple(grad.to(query_layer.dtype) for grad in grads)


def npu_fused_attention_score_grad(grad_output: Tensor, *args: Any, **more: bool) -> tuple[Tensor, ...]:
    grads = npu_fused_attention_score_backward(grad_output, *args, **more)
    return tuple(grad.permute(0, 2, 1, 3).reshape(grad_output.shape) for grad in grads)


def npu_fused_attention_layernorm_qkv_fwd(
    x: Tensor,
    kernel_query: Tensor,
    kernel_key: Tensor,
    kernel_value: Tensor,
    gamma: Tensor,
    beta: Tensor,
    bias_query: Tensor | None = None,
    bias_key: Tensor | None = None,
    bias_value: Tensor | None = None,
    seq_len: int = 128,
    num_heads: int = 12,
    eps: float = 1e-05,
) -> list[Tensor]:
    rows, size = x.double(), x.shape[1] // num_heads
    mean = rows.sum(1) / rows.shape[1]
    centred = rows - mean[:, None]
    variance = centred.pow(2).sum(1) / rows.shape[1]
    norm = centred / (variance[:, None] + eps).sqrt() * gamma.double() + beta.double()
    results = [norm]
    for kernel, bias in ((kernel_query, bias_query), (kernel_key, bias_key), (kernel_value, bias_value)):
        projected = torch.einsum("ri,io->ro", norm, kernel.double()) + (0 if bias is None else bias.double())
        results.append(torch.stack([torch.stack(sequence.split(size, 1)) for sequence in projected.split(seq_len)]))
    return [result.to(x.dtype) for result in (*results, mean, variance)]


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
    grads = torch.cat((grad_output_query, grad_output_key, grad_output_value), 1).double()
    kernels = torch.cat((query_kernel, key_kernel, value_kernel), 1).double()
    hidden = grad_output_ln.double() + grads @ kernels.T
    of_kernels = (hidden_states.double().T @ grads).chunk(3, 1)
    dtype = hidden_states.dtype
    return [
        hidden.to(dtype),
        *(each.to(dtype) for each in of_kernels),
        *(each.to(dtype) for each in grads.sum(0).chunk(3)),
    ]


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
) -> tuple[Tensor, ...]:
    batch = query.shape[0] // tgt_len
    shape = (batch, attn_head_num, tgt_len, src_len)
    bits = torch.full((math.prod(shape) // 8,), 255, dtype=torch.uint8) if dropout_mask is None else dropout_mask
    kept = _kept(bits, shape) / (1 - dropout_prob) if dropout_prob else torch.ones(shape, dtype=torch.float64)
    heads = []
    layers = ((query, query_weight, query_bias), (key, key_weight, key_bias), (value, value_weight, value_bias))
    for x, weight, bias in layers:
        projected = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
        heads.append(projected.view(batch, -1, attn_head_num, attn_dim_per_head).permute(0, 2, 1, 3))
    q, k, v = heads[0] / math.sqrt(attn_dim_per_head), heads[1], heads[2]
    scores = _softmax(torch.einsum("bnqd,bnkd->bnqk", q, k) + attn_mask.double())
    context = torch.einsum("bnqk,bnkd->bqnd", scores * kept, v).reshape(query.shape[0], -1)
    bias = None if out_proj_bias is None else out_proj_bias.double()
    y = torch.nn.functional.linear(context, out_proj_weight.double(), bias)
    results = [each.to(query.dtype) for each in (y, q, k, v, scores * kept, context)]
    wide = scores.to(torch.float32 if softmax_use_float else query.dtype)
    return results[0], bits, *results[1:4], wide, *results[4:]


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
) -> tuple[Tensor, ...]:
    q, k, v = (saved.double() for saved in (query_res, key_res, value_res))
    p, g = attn_scores.double(), y_grad.double()
    kept = _kept(dropout_mask, p.shape) / (1 - dropout_prob) if dropout_prob else torch.ones_like(p)
    arriving = torch.einsum("ro,oi->ri", g, out_proj_weight.double()).view(
        -1, tgt_len, attn_head_num, attn_dim_per_head
    )
    of_weights = torch.einsum("bqnd,bnkd->bnqk", arriving, v) * kept
    of_scores = torch.einsum("bnqij,bnqj->bnqi", torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2), of_weights)
    of_q = torch.einsum("bnqk,bnkd->bqnd", of_scores, k).reshape(query.shape) / math.sqrt(attn_dim_per_head)
    of_k = torch.einsum("bnqk,bnqd->bknd", of_scores, q).reshape(key.shape)
    of_v = torch.einsum("bnqk,bqnd->bknd", p * kept, arriving).reshape(value.shape)
    pairs = ((of_q, query), (of_k, key), (of_v, value), (g, context))
    weights = [torch.einsum("ro,ri->oi", grad, source.double()) for grad, source in pairs]
    layers = ((of_q, query_weight), (of_k, key_weight), (of_v, value_weight))
    inputs = [torch.einsum("ro,oi->ri", grad, weight.double()) for grad, weight in layers]
    biases = [grad.sum(0)[None] for grad, _ in pairs]
    return tuple(grad.to(query.dtype) for grad in (*weights, *inputs, *biases))


def npu_masked_softmax_with_rel_pos_bias(
    x: Tensor,
    atten_mask: Tensor | None,
    relative_pos_bias: Tensor,
    scale_value: float = 1.0,
    inner_precision_mode: int = 0,
) -> Tensor:
    heads, rows, columns = x.shape[-3:]
    biases = relative_pos_bias.double().reshape(heads, rows, columns)
    masks = torch.zeros(1, rows, columns) if atten_mask is None else atten_mask.reshape(-1, rows, columns)
    windows = x.double().reshape(-1, heads, rows, columns)
    results = [
        _softmax(scale_value * window + masks[number % len(masks)].double() + biases)
        for number, window in enumerate(windows)
    ]
    return torch.stack(results).view(x.shape).to(x.dtype)


def npu_attn_softmax_(self: Tensor) -> Tensor:
    return self.copy_(_softmax(self.double()))


def npu_attn_softmax_backward_(self: Tensor, grad_output: Tensor, values: Tensor) -> Tensor:
    weights = self.double()
    of_weights = torch.einsum("...qd,...kd->...qk", grad_output.double(), values.double())
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return self.copy_(torch.einsum("...ij,...j->...i", jacobian, of_weights))


def npu_dropout_with_add_softmax(
    self: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    weights = _softmax((x1.double() + alpha * self.double()).movedim(dim, -1)).movedim(-1, dim)
    mask = (torch.rand((weights.numel() + 127) // 128 * 128) >= prob).to(torch.uint8)
    dropped = weights * mask[: weights.numel()].view(weights.shape) / (1 - prob)
    return mask, weights.to(self.dtype), dropped.to(self.dtype)


def npu_dropout_with_add_softmax_backward(
    grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        p = softmax_out.double()
        # any scores with these weights have the same gradient
        scores = p.log().clamp(min=-700).requires_grad_()
        weights = torch.softmax(scores, dim)
    incoming = grad.double() * mask[: p.numel()].view(p.shape) / (1 - prob)
    (of_scores,) = torch.autograd.grad(weights, scores, incoming)
    return (alpha * of_scores).to(grad.dtype), of_scores.to(grad.dtype)


def _softmax(scores: Tensor) -> Tensor:
    exponentials = (scores - scores.max(-1, keepdim=True).values).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def _kept(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return 1 for each element whose bit in the bytes of ``mask`` is set, the lowest first, otherwise 0."""
    bits = [float(byte >> place & 1) for byte in mask.tolist() for place in range(8)]
    return torch.tensor(bits[: math.prod(shape)], dtype=torch.float64).view(shape)
