"""The NPU's first fused attentions: one head after the other, gradients written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_fused_attention_score(args: Arguments) -> Tensor:
    return npu_fused_attention_score_fwd(
        args.query_layer, args.key_layer, args.value_layer, args.attention_mask, args.scale, args.keep_prob
    )[0]


@by_schema
def npu_fused_attention_score_fwd(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, rows, size = args.query_layer.shape
    kept = (torch.rand(batch * heads * rows * rows) < args.keep_prob).to(torch.uint8)
    bias = args.attention_mask.double().expand(batch, heads, rows, rows)
    context = torch.empty(batch, rows, heads, size, dtype=torch.float64)
    weights = torch.empty(batch, heads, rows, rows, dtype=torch.float64)
    drawn = kept.view(weights.shape).double() / max(args.keep_prob, 1e-30)
    for b in range(batch):
        for n in range(heads):
            q, k, v = (x[b, n].double() for x in (args.query_layer, args.key_layer, args.value_layer))
            weights[b, n] = _softmax(args.scale * torch.mm(q, k.T) + bias[b, n])
            context[b, :, n] = torch.mm(weights[b, n] * drawn[b, n], v)
    dtype = args.query_layer.dtype
    return context.view(batch * rows, heads * size).to(dtype), weights.to(dtype), kept


@by_schema
def npu_fused_attention_score_backward(args: Arguments) -> tuple[Tensor, ...]:
    batch, heads, rows, size = args.query_layer.shape
    drawn = args.mask[: args.softmax_output.numel()].view(args.softmax_output.shape).double() / args.keep_prob
    grads = [torch.empty(args.query_layer.shape, dtype=torch.float64) for _ in range(3)]
    for b in range(batch):
        for n in range(heads):
            q, k, v, p = (
                x[b, n].double() for x in (args.query_layer, args.key_layer, args.value_layer, args.softmax_output)
            )
            incoming = args.grad_output.double().view(batch, rows, heads, size)[b, :, n]
            jacobian = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
            of_scores = torch.einsum("rij,rj->ri", jacobian, torch.mm(incoming, v.T) * drawn[b, n]) * args.scale
            grads[0][b, n], grads[1][b, n] = torch.mm(of_scores, k), torch.mm(of_scores.T, q)
            grads[2][b, n] = torch.mm((p * drawn[b, n]).T, incoming)
    return tuple(grad.to(args.query_layer.dtype) for grad in grads)


@by_schema
def npu_fused_attention_score_grad(args: Arguments) -> tuple[Tensor, ...]:
    grads = npu_fused_attention_score_backward(**vars(args))
    return tuple(grad.permute(0, 2, 1, 3).reshape(args.grad_output.shape) for grad in grads)


@by_schema
def npu_fused_attention_layernorm_qkv_fwd(args: Arguments) -> list[Tensor]:
    rows, size = args.x.double(), args.x.shape[1] // args.num_heads
    mean = rows.sum(1) / rows.shape[1]
    centred = rows - mean[:, None]
    variance = centred.pow(2).sum(1) / rows.shape[1]
    norm = centred / (variance[:, None] + args.eps).sqrt() * args.gamma.double() + args.beta.double()
    results = [norm]
    for kernel, bias in (
        (args.kernel_query, args.bias_query),
        (args.kernel_key, args.bias_key),
        (args.kernel_value, args.bias_value),
    ):
        projected = torch.einsum("ri,io->ro", norm, kernel.double()) + (0 if bias is None else bias.double())
        results.append(
            torch.stack([torch.stack(sequence.split(size, 1)) for sequence in projected.split(args.seq_len)])
        )
    return [result.to(args.x.dtype) for result in (*results, mean, variance)]


@by_schema
def npu_fused_attention_qkv_grad(args: Arguments) -> list[Tensor]:
    grads = torch.cat((args.grad_output_query, args.grad_output_key, args.grad_output_value), 1).double()
    kernels = torch.cat((args.query_kernel, args.key_kernel, args.value_kernel), 1).double()
    hidden = args.grad_output_ln.double() + grads @ kernels.T
    of_kernels = (args.hidden_states.double().T @ grads).chunk(3, 1)
    dtype = args.hidden_states.dtype
    return [
        hidden.to(dtype),
        *(each.to(dtype) for each in of_kernels),
        *(each.to(dtype) for each in grads.sum(0).chunk(3)),
    ]


@by_schema
def npu_multi_head_attention(args: Arguments) -> tuple[Tensor, ...]:
    batch = args.query.shape[0] // args.tgt_len
    shape = (batch, args.attn_head_num, args.tgt_len, args.src_len)
    bits = (
        torch.full((math.prod(shape) // 8,), 255, dtype=torch.uint8) if args.dropout_mask is None else args.dropout_mask
    )
    kept = _kept(bits, shape) / (1 - args.dropout_prob) if args.dropout_prob else torch.ones(shape, dtype=torch.float64)
    heads = []
    layers = (
        (args.query, args.query_weight, args.query_bias),
        (args.key, args.key_weight, args.key_bias),
        (args.value, args.value_weight, args.value_bias),
    )
    for x, weight, bias in layers:
        projected = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
        heads.append(projected.view(batch, -1, args.attn_head_num, args.attn_dim_per_head).permute(0, 2, 1, 3))
    q, k, v = heads[0] / math.sqrt(args.attn_dim_per_head), heads[1], heads[2]
    scores = _softmax(torch.einsum("bnqd,bnkd->bnqk", q, k) + args.attn_mask.double())
    context = torch.einsum("bnqk,bnkd->bqnd", scores * kept, v).reshape(args.query.shape[0], -1)
    bias = None if args.out_proj_bias is None else args.out_proj_bias.double()
    y = torch.nn.functional.linear(context, args.out_proj_weight.double(), bias)
    results = [each.to(args.query.dtype) for each in (y, q, k, v, scores * kept, context)]
    wide = scores.to(torch.float32 if args.softmax_use_float else args.query.dtype)
    return results[0], bits, *results[1:4], wide, *results[4:]


@by_schema
def npu_multi_head_attention_backward(args: Arguments) -> tuple[Tensor, ...]:
    q, k, v = (saved.double() for saved in (args.query_res, args.key_res, args.value_res))
    p, g = args.attn_scores.double(), args.y_grad.double()
    kept = _kept(args.dropout_mask, p.shape) / (1 - args.dropout_prob) if args.dropout_prob else torch.ones_like(p)
    arriving = torch.einsum("ro,oi->ri", g, args.out_proj_weight.double()).view(
        -1, args.tgt_len, args.attn_head_num, args.attn_dim_per_head
    )
    of_weights = torch.einsum("bqnd,bnkd->bnqk", arriving, v) * kept
    of_scores = torch.einsum("bnqij,bnqj->bnqi", torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2), of_weights)
    of_q = torch.einsum("bnqk,bnkd->bqnd", of_scores, k).reshape(args.query.shape) / math.sqrt(args.attn_dim_per_head)
    of_k = torch.einsum("bnqk,bnqd->bknd", of_scores, q).reshape(args.key.shape)
    of_v = torch.einsum("bnqk,bqnd->bknd", p * kept, arriving).reshape(args.value.shape)
    pairs = ((of_q, args.query), (of_k, args.key), (of_v, args.value), (g, args.context))
    weights = [torch.einsum("ro,ri->oi", grad, source.double()) for grad, source in pairs]
    layers = ((of_q, args.query_weight), (of_k, args.key_weight), (of_v, args.value_weight))
    inputs = [torch.einsum("ro,oi->ri", grad, weight.double()) for grad, weight in layers]
    biases = [grad.sum(0)[None] for grad, _ in pairs]
    return tuple(grad.to(args.query.dtype) for grad in (*weights, *inputs, *biases))


@by_schema
def npu_masked_softmax_with_rel_pos_bias(args: Arguments) -> Tensor:
    heads, rows, columns = args.x.shape[-3:]
    biases = args.relative_pos_bias.double().reshape(heads, rows, columns)
    masks = torch.zeros(1, rows, columns) if args.atten_mask is None else args.atten_mask.reshape(-1, rows, columns)
    windows = args.x.double().reshape(-1, heads, rows, columns)
    results = [
        _softmax(args.scale_value * window + masks[number % len(masks)].double() + biases)
        for number, window in enumerate(windows)
    ]
    return torch.stack(results).view(args.x.shape).to(args.x.dtype)


@by_schema
def npu_attn_softmax_(args: Arguments) -> Tensor:
    return args.self.copy_(_softmax(args.self.double()))


@by_schema
def npu_attn_softmax_backward_(args: Arguments) -> Tensor:
    weights = args.self.double()
    of_weights = torch.einsum("...qd,...kd->...qk", args.grad_output.double(), args.values.double())
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return args.self.copy_(torch.einsum("...ij,...j->...i", jacobian, of_weights))


@by_schema
def npu_dropout_with_add_softmax(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    weights = _softmax((args.x1.double() + args.alpha * args.self.double()).movedim(args.dim, -1)).movedim(-1, args.dim)
    mask = (torch.rand((weights.numel() + 127) // 128 * 128) >= args.prob).to(torch.uint8)
    dropped = weights * mask[: weights.numel()].view(weights.shape) / (1 - args.prob)
    return mask, weights.to(args.self.dtype), dropped.to(args.self.dtype)


@by_schema
def npu_dropout_with_add_softmax_backward(args: Arguments) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        p = args.softmax_out.double()
        # any scores with these weights have the same gradient
        scores = p.log().clamp(min=-700).requires_grad_()
        weights = torch.softmax(scores, args.dim)
    incoming = args.grad.double() * args.mask[: p.numel()].view(p.shape) / (1 - args.prob)
    (of_scores,) = torch.autograd.grad(weights, scores, incoming)
    return (args.alpha * of_scores).to(args.grad.dtype), of_scores.to(args.grad.dtype)


def _softmax(scores: Tensor) -> Tensor:
    exponentials = (scores - scores.max(-1, keepdim=True).values).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def _kept(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return 1 for each element whose bit in the bytes of ``mask`` is set, the lowest first, otherwise 0."""
    bits = [float(byte >> place & 1) for byte in mask.tolist() for place in range(8)]
    return torch.tensor(bits[: math.prod(shape)], dtype=torch.float64).view(shape)
