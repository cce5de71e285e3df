"""Manifold-constrained hyper-connections (Xie et al., 2025): what goes into a layer, and what comes out of it.

There are n streams of D features in place of one residual: x is (T, n, D) or (B, S, n, D).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32


@golden("NPU.npu_mhc_pre")
def npu_mhc_pre(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor,
    *, gamma: Tensor | None = None, norm_eps: float = 1e-6, hc_eps: float = 1e-6, out_flag: int = 0,
    inner_precise: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (h_in, h_post, h_res, inv_rms, h_mix, h_pre), the input of a layer and the weights of its streams.

    With the streams flat, (..., nD): h_mix = (x gamma) phi^T, (..., n^2 + 2n), inv_rms = 1 / sqrt(mean(x^2) +
    norm_eps). Its parts times inv_rms, ``alpha`` (3) and plus ``bias`` are pre and post (..., n) and res (..., n, n):
    h_pre = sigmoid(pre) + hc_eps, h_post = 2 sigmoid(post), h_res = res, and h_in = sum_n h_pre x, (..., D).

    With two ``alpha`` there is no res, and h_res is None. The last three are None without ``out_flag``: the device
    leaves them undefined. They have no gradient. ``inner_precise`` chooses the device's precision of products.
    """
    n, is_residual = x.shape[-2], alpha.numel() == 3
    flat = at_least_float32(x).flatten(-2)
    h_mix = (flat if gamma is None else flat * gamma.flatten()) @ phi.T
    inv_rms = torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    sizes = [n, n, n * n] if is_residual else [n, n]
    parts, biases = torch.split(h_mix * inv_rms, sizes, -1), torch.split(bias, sizes)
    pre, post, *rest = (a * part + b for a, part, b in zip(alpha, parts, biases, strict=True))
    h_pre = torch.sigmoid(pre) + hc_eps
    h_in = (h_pre.unsqueeze(-1) * x).sum(-2).to(x.dtype)
    h_res = rest[0].unflatten(-1, (n, n)) if rest else None
    saved = (inv_rms.squeeze(-1).detach(), h_mix.detach(), h_pre.detach()) if out_flag else (None, None, None)
    return h_in, 2 * torch.sigmoid(post), h_res, *saved


@golden("Aten.npu_mhc_pre_backward")
def npu_mhc_pre_backward(
    x: Tensor, phi: Tensor, alpha: Tensor, grad_h_in: Tensor, grad_h_post: Tensor, grad_h_res: Tensor,
    inv_rms: Tensor, h_mix: Tensor, h_pre: Tensor, h_post: Tensor, gamma: Tensor | None = None,
    hc_eps: float = 1e-6, grad_x_post: Tensor | None = None, inner_precise: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return the gradients of :func:`npu_mhc_pre` for x, phi, alpha, bias and gamma (None without it).

    They follow from the forward's results, for the bias is not among the arguments. ``grad_x_post``, the gradient of
    x through :func:`npu_mhc_post`, is added to that of x.
    """
    flat, scale = at_least_float32(x).flatten(-2), inv_rms.unsqueeze(-1)
    sigmoid = h_pre - hc_eps
    grad_pre = (grad_h_in.unsqueeze(-2) * x).sum(-1) * sigmoid * (1 - sigmoid)
    grad_post = grad_h_post * h_post * (1 - h_post / 2)
    grads = [grad_pre, grad_post, *([grad_h_res.flatten(-2)] if alpha.numel() == 3 else [])]
    scaled = torch.cat([a * grad for a, grad in zip(alpha, grads, strict=True)], -1)
    parts = torch.split(h_mix * scale, [grad.shape[-1] for grad in grads], -1)
    grad_alpha = torch.stack([(grad * part).sum() for grad, part in zip(grads, parts, strict=True)])
    grad_bias = torch.cat(grads, -1).flatten(0, -2).sum(0)
    grad_mix = scaled * scale
    weighted = flat if gamma is None else flat * gamma.flatten()
    grad_phi = grad_mix.flatten(0, -2).T @ weighted.flatten(0, -2)
    grad_weighted = grad_mix @ phi
    grad_scale = (scaled * h_mix).sum(-1, keepdim=True)
    grad_flat = grad_weighted if gamma is None else grad_weighted * gamma.flatten()
    grad_flat = grad_flat - grad_scale * scale**3 / flat.shape[-1] * flat
    grad_x = grad_flat.reshape(x.shape) + h_pre.unsqueeze(-1) * grad_h_in.unsqueeze(-2)
    if grad_x_post is not None:
        grad_x = grad_x + grad_x_post
    grad_gamma = None if gamma is None else (grad_weighted * flat).flatten(0, -2).sum(0).view(gamma.shape)
    return grad_x.to(x.dtype), grad_phi, grad_alpha, grad_bias, grad_gamma


@golden("NPU.npu_mhc_post")
def npu_mhc_post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    """Return the streams behind a layer: y_j = sum_i h_res[i, j] x_i + h_post[j] h_out.

    ``h_res`` (..., n, n) is transposed, as the installed documentation and op-plugin's tests have it; None means
    the identity. ``h_out`` is (..., D), ``h_post`` (..., n).
    """
    streams = at_least_float32(x) if h_res is None else h_res.mT @ at_least_float32(x)
    return (streams + h_post.unsqueeze(-1) * h_out.unsqueeze(-2)).to(x.dtype)


@golden("Aten.npu_mhc_post_backward")
def npu_mhc_post_backward(
    grad_y: Tensor, x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`npu_mhc_post` for x, h_res, h_out and h_post; that of h_res without it too."""
    grad, wide = at_least_float32(grad_y), at_least_float32(x)
    return (
        (grad if h_res is None else h_res @ grad).to(x.dtype),
        wide @ grad.mT,
        (h_post.unsqueeze(-1) * grad).sum(-2).to(h_out.dtype),
        (grad * h_out.unsqueeze(-2)).sum(-1),
    )


@golden("NPU.npu_mhc_sinkhorn")
def npu_mhc_sinkhorn(
    x: Tensor, *, eps: float = 1e-6, num_iters: int = 20, out_flag: int = 0
) -> tuple[Tensor, None, None]:
    """Return (y, None, None): matrices whose rows and columns sum to 1 (Sinkhorn and Knopp, 1967).

    softmax(x) + eps over rows, then columns and, ``num_iters`` - 1 times, rows and columns are divided by their sums
    plus eps. What ``out_flag`` asks for besides is laid out by the number of the card's cores, so that nothing is
    promised of it.
    """
    y = torch.softmax(x, -1) + eps
    y = y / (y.sum(-2, keepdim=True) + eps)
    for _ in range(num_iters - 1):
        y = y / (y.sum(-1, keepdim=True) + eps)
        y = y / (y.sum(-2, keepdim=True) + eps)
    return y, None, None
