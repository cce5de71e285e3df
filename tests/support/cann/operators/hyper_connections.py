"""The NPU's hyper-connections, token by token; gradients by differentiating these."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

# the device fills rows of n up to a block of eight numbers
_ALIGNED = 8


@by_schema
def npu_mhc_pre(args: Arguments) -> tuple[Tensor, ...]:
    results = _pre(
        *(tensor.double() for tensor in (args.x, args.phi, args.alpha, args.bias)),
        args.gamma,
        args.norm_eps,
        args.hc_eps,
    )
    h_in, *others = (result.detach().clone() for result in results)
    return h_in.to(args.x.dtype), *(other.float() for other in others)


@by_schema
def npu_mhc_pre_backward(args: Arguments) -> tuple[Tensor, ...]:
    n = args.x.shape[-2]
    # the bias of the forward is what its results and those of a bias of zero differ by
    norm_eps = float(
        (1 / args.inv_rms.double().flatten()[0] ** 2) - args.x.double().flatten(-2).square().mean(-1).flatten()[0]
    )
    token = args.h_mix.double().flatten(0, -2)[0] * args.inv_rms.double().flatten()[0]
    wanted = torch.cat(
        (
            torch.logit(args.h_pre.double() - args.hc_eps).flatten(0, -2)[0],
            torch.logit(args.h_post.double() / 2).flatten(0, -2)[0],
        )
    )
    scale = torch.cat((args.alpha[0].double().expand(n), args.alpha[1].double().expand(n)))
    bias = torch.cat((wanted - scale * token[: 2 * n], torch.zeros(n * n, dtype=torch.float64)))
    with torch.enable_grad():
        leaves = [tensor.double().requires_grad_() for tensor in (args.x, args.phi, args.alpha, bias)]
        weight = torch.ones(args.x.shape[-2:]) if args.gamma is None else args.gamma
        leaves.append(weight.double().requires_grad_())
        results = _pre(*leaves, max(norm_eps, 0.0), args.hc_eps)[:3]
    incoming = [grad.double() for grad in (args.grad_h_in, args.grad_h_post, args.grad_h_res)]
    grads = list(torch.autograd.grad(results, leaves, incoming))
    if args.grad_x_post is not None:
        grads[0] = grads[0] + args.grad_x_post.double()
    grad_x, *others = grads
    return grad_x.to(args.x.dtype), *(other.float() for other in others)


@by_schema
def npu_mhc_post(args: Arguments) -> Tensor:
    return _post(args.x, args.h_res, args.h_out, args.h_post).to(args.x.dtype)


@by_schema
def npu_mhc_post_backward(args: Arguments) -> tuple[Tensor, ...]:
    n = args.x.shape[-2]
    mixing = torch.eye(n).expand(*args.x.shape[:-1], n) if args.h_res is None else args.h_res
    with torch.enable_grad():
        leaves = [tensor.double().requires_grad_() for tensor in (args.x, mixing, args.h_out, args.h_post)]
        y = _post(*leaves)
    grads = torch.autograd.grad(y, leaves, args.grad_y.double())
    return tuple(
        grad.to(like.dtype) for grad, like in zip(grads, (args.x, mixing, args.h_out, args.h_post), strict=True)
    )


@by_schema
def npu_mhc_sinkhorn(args: Arguments) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Play a card that has a core for each matrix: each leaves its norms and sums one after the other."""
    n = args.x.shape[-1]
    matrices = args.x.double().reshape(-1, n, n)
    norms, sums = (
        args.x.new_zeros(len(matrices), 2 * args.num_iters, n, _ALIGNED),
        args.x.new_ones(len(matrices), 2 * args.num_iters, _ALIGNED),
    )
    y = torch.empty_like(matrices)
    for at, matrix in enumerate(matrices):
        exponentials = (matrix - matrix.max()).exp()
        current = exponentials / exponentials.sum(1)[:, None]
        norms[at, 0, :, :n] = current
        current = current + args.eps
        for step in range(1, 2 * args.num_iters):
            along = step % 2 == 0
            total = current.sum(1 if along else 0) + args.eps
            current = current / (total[:, None] if along else total[None, :])
            norms[at, step, :, :n], sums[at, step, :n] = current, total
        y[at] = current
    result = y.to(args.x.dtype).view(args.x.shape)
    return (result, norms.flatten(), sums.flatten()) if args.out_flag else (result, None, None)


@by_schema
def npu_mhc_sinkhorn_backward(args: Arguments) -> Tensor:
    n = args.grad_y.shape[-1]
    grads = args.grad_y.double().reshape(-1, n, n)
    norms = args.norm.double().view(len(grads), -1, n, _ALIGNED)[..., :n]
    sums = args.sum.double().view(len(grads), -1, _ALIGNED)[..., :n]
    for step in range(norms.shape[1] - 1, -1, -1):
        dim = 2 if step % 2 == 0 else 1
        grads = grads - (grads * norms[:, step]).sum(dim, keepdim=True)
        grads = grads / sums[:, step].unsqueeze(dim) if step else grads * norms[:, 0]
    return grads.to(args.grad_y.dtype).view(args.grad_y.shape)


def _pre(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, norm_eps: float, hc_eps: float
) -> list[Tensor]:
    n = x.shape[-2]
    weights = torch.ones(x.shape[-2:], dtype=x.dtype) if gamma is None else gamma.to(x.dtype)
    tokens = []
    for token in x.reshape(-1, *x.shape[-2:]):
        inverse = (token.pow(2).sum() / token.numel() + norm_eps) ** -0.5
        mixed = torch.mv(phi, (token * weights).flatten())
        normed = mixed * inverse
        pre = 1 / (1 + torch.exp(-(alpha[0] * normed[:n] + bias[:n]))) + hc_eps
        post = 2 / (1 + torch.exp(-(alpha[1] * normed[n : 2 * n] + bias[n : 2 * n])))
        res = (alpha[2] * normed[2 * n :] + bias[2 * n :]).reshape(n, n)
        tokens.append((torch.mv(token.T, pre), post, res, inverse, mixed, pre))
    leading = x.shape[:-2]
    return [torch.stack(each).reshape(*leading, *each[0].shape) for each in zip(*tokens, strict=True)]


def _post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    streams = x.double() if h_res is None else torch.einsum("...ij,...id->...jd", h_res.double(), x.double())
    return streams + torch.einsum("...j,...d->...jd", h_post.double(), h_out.double())
