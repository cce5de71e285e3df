"""Normalizations row by row, and their gradients by the Jacobian of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _rows(x: Tensor, dims: int) -> Tensor:
    """The last dimensions as one, those before as one."""
    return x.double().reshape(x.shape[: x.dim() - dims].numel(), -1)


def _statistic(numbers: list[float], x: Tensor, dims: int, *, ones: int | None = None) -> Tensor:
    shape = (*x.shape[: x.dim() - dims], *[1] * (dims if ones is None else ones))
    return torch.tensor(numbers, dtype=torch.float32).reshape(shape)


def _rms(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The normalized x in float64, and what each row was multiplied with."""
    rows = _rows(x, gamma.dim())
    scales = [1 / math.sqrt(float(row @ row) / len(row) + epsilon) for row in rows]
    out = torch.stack([row * scale * gamma.double().flatten() for row, scale in zip(rows, scales, strict=True)])
    return out.reshape(x.shape), _statistic(scales, x, gamma.dim())


def npu_gemma_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    out, scale = _rms(self, gamma.double() + 1, epsilon)
    return out.to(self.dtype), scale


def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    x = x1.double() + x2.double()
    out, scale = _rms(x, gamma, epsilon)
    return out.to(x1.dtype), scale, x.to(x1.dtype)


def npu_add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, scale = _rms(x1.double() + x2.double(), gamma, epsilon)
    return out.float(), out.to(x1.dtype), scale, (x1.double() + x2.double()).to(x1.dtype)


def npu_add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    out, scale, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(out)
    x2.copy_(x)
    return scale


def npu_add_rms_norm_v2_functional(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    out, scale, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return scale, out, x


def _layer_norm(x: Tensor, dims: int, epsilon: float) -> tuple[Tensor, list[float], list[float]]:
    rows = _rows(x, dims)
    means = [float(row.mean()) for row in rows]
    scales = [1 / math.sqrt(float(row.var(correction=0)) + epsilon) for row in rows]
    out = [(row - mean) * scale for row, mean, scale in zip(rows, means, scales, strict=True)]
    return torch.stack(out).reshape(x.shape), means, scales


def npu_add_layer_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5, additional_output: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = x1.double() + x2.double()
    out, means, scales = _layer_norm(x, gamma.dim(), epsilon)
    statistics = [_statistic(each, x, gamma.dim(), ones=1) for each in (means, scales)]
    return (out * gamma.double() + beta.double()).to(x1.dtype), *statistics, x.to(x1.dtype)


def npu_deep_norm(
    x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    z = alpha * x.double() + gx.double()
    out, means, scales = _layer_norm(z, gamma.dim(), epsilon)
    statistics = [_statistic(each, x, gamma.dim()) for each in (means, scales)]
    return *statistics, (out * gamma.double() + beta.double()).to(x.dtype)


def _of_row(grad: Tensor, normalized: Tensor, scale: float) -> Tensor:
    """The gradient of a row from that of the normalized one, by the Jacobian."""
    count = len(normalized)
    jacobian = (torch.eye(count) - 1 / count - torch.outer(normalized, normalized) / count) * scale
    return jacobian.T @ grad


def _layer_norm_grad(
    grad: Tensor, x: Tensor, dims: int, mean: Tensor, rstd: Tensor, gamma: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    rows, grads = _rows(x, dims), _rows(grad, dims)
    weight = torch.ones(rows.shape[1]).double() if gamma is None else gamma.double().flatten()
    of_x, of_gamma, of_beta = torch.zeros_like(rows), torch.zeros_like(weight), torch.zeros_like(weight)
    statistics = zip(mean.double().flatten().tolist(), rstd.double().flatten().tolist(), strict=True)
    for i, (centre, scale) in enumerate(statistics):
        normalized = (rows[i] - centre) * scale
        of_x[i] = _of_row(grads[i] * weight, normalized, scale)
        of_gamma += grads[i] * normalized
        of_beta += grads[i]
    shape = x.shape[x.dim() - dims :]
    return of_x.reshape(x.shape), of_gamma.reshape(shape), of_beta.reshape(shape)


def npu_layernorm_grad(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    found = _layer_norm_grad(grad_out, input, len(normalized_shape), mean, rstd, weight)
    return found[0].to(input.dtype), found[1].to(input.dtype), found[2].to(input.dtype)


def npu_add_layer_norm_backward(
    dy_opt: Tensor | None,
    x1: Tensor,
    x2: Tensor,
    rstd: Tensor,
    mean: Tensor,
    gamma: Tensor,
    dsum_opt: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dy = torch.zeros_like(x1) if dy_opt is None else dy_opt
    of_x, of_gamma, of_beta = _layer_norm_grad(dy, x1.double() + x2.double(), gamma.dim(), mean, rstd, gamma)
    of_x = (of_x if dsum_opt is None else of_x + dsum_opt.double()).to(x1.dtype)
    return of_x, of_x.clone(), of_gamma.float(), of_beta.float()


def npu_deep_norm_backward(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float = 0.3
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    z = alpha * x.double() + gx.double()
    of_z, of_gamma, of_beta = _layer_norm_grad(dy, z, gamma.dim(), mean, rstd, gamma)
    return (alpha * of_z).to(x.dtype), of_z.to(x.dtype), of_beta.float(), of_gamma.float()


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized x in float64 with weight and bias of its channels, mean and scale of each group."""
    grouped = x.reshape(len(x), groups, -1)
    out, means, scales = _layer_norm(grouped, 1, eps)
    out = out.reshape(len(x), x.shape[1], -1)
    for channel in range(x.shape[1]):
        out[:, channel] *= 1.0 if weight is None else float(weight[channel])
        out[:, channel] += 0.0 if bias is None else float(bias[channel])
    statistics = [torch.tensor(each).reshape(len(x), groups).to(x.dtype) for each in (means, scales)]
    return out.reshape(x.shape), statistics[0], statistics[1]


def npu_group_norm_silu(
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    group: int,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _group_norm(input, weight, bias, group, eps)
    return (y / (1 + (-y).exp())).to(input.dtype), mean, scale


def npu_group_norm_swish(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float | None = 1e-5,
    swish_scale: float | None = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _group_norm(input, weight, bias, num_groups, 1e-5 if eps is None else eps)
    slope = 1.0 if swish_scale is None else swish_scale
    return (y / (1 + (-slope * y).exp())).to(input.dtype), mean, scale


def npu_group_norm_swish_grad(
    grad: Tensor,
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_input_mask: Sequence[bool],
    swish_scale: float | None = 1.0,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    slope, channels = 1.0 if swish_scale is None else swish_scale, input.shape[1]
    size = channels // num_groups
    x, dy = input.double().reshape(len(input), channels, -1), grad.double().reshape(len(input), channels, -1)
    of_x, of_weight, of_bias = torch.zeros_like(x), torch.zeros(channels).double(), torch.zeros(channels).double()
    for n in range(len(x)):
        for g in range(num_groups):
            part, scale = slice(g * size, (g + 1) * size), float(rstd[n, g])
            normalized = (x[n, part] - float(mean[n, g])) * scale
            gamma = weight[part].double().unsqueeze(1)
            y = normalized * gamma + bias[part].double().unsqueeze(1)
            step = 1e-6
            above, below = ((y + sign * step) / (1 + (-slope * (y + sign * step)).exp()) for sign in (1, -1))
            of_y = dy[n, part] * (above - below) / (2 * step)
            of_weight[part] += (of_y * normalized).sum(1)
            of_bias[part] += of_y.sum(1)
            of_x[n, part] = _of_row((of_y * gamma).flatten(), normalized.flatten(), scale).reshape(normalized.shape)
    found = (of_x.reshape(input.shape), of_weight, of_bias)
    results = [each.to(input.dtype) if wanted else None for each, wanted in zip(found, grad_input_mask, strict=True)]
    return results[0], results[1], results[2]


def npu_renorm_backward(grad: Tensor, self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    out = torch.zeros_like(self, dtype=torch.float64)
    for place in range(self.shape[dim]):
        x, g = self.select(dim, place).double().flatten(), grad.select(dim, place).double().flatten()
        norm = float((x.abs() ** p).sum() ** (1 / p))
        slope = g
        if norm > maxnorm:
            total = norm + 1e-7
            of_norm = x.sign() * x.abs() ** (p - 1) * norm ** (1 - p)
            slope = maxnorm * (g / total - float(g @ x) / total**2 * of_norm)
        out.select(dim, place).copy_(slope.reshape(self.select(dim, place).shape))
    return out.to(self.dtype)
