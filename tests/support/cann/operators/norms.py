"""Normalizations row by row, and their gradients by the Jacobian of a row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


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


@by_schema
def npu_gemma_rms_norm(args: Arguments) -> tuple[Tensor, Tensor]:
    out, scale = _rms(args.self, args.gamma.double() + 1, args.epsilon)
    return out.to(args.self.dtype), scale


@by_schema
def npu_add_rms_norm(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    x = args.x1.double() + args.x2.double()
    out, scale = _rms(x, args.gamma, args.epsilon)
    return out.to(args.x1.dtype), scale, x.to(args.x1.dtype)


@by_schema
def npu_add_rms_norm_cast(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, scale = _rms(args.x1.double() + args.x2.double(), args.gamma, args.epsilon)
    return out.float(), out.to(args.x1.dtype), scale, (args.x1.double() + args.x2.double()).to(args.x1.dtype)


@by_schema
def npu_add_rms_norm_v2(args: Arguments) -> Tensor:
    out, scale, x = npu_add_rms_norm(args.x1, args.x2, args.gamma, args.epsilon)
    args.x1.copy_(out)
    args.x2.copy_(x)
    return scale


@by_schema
def npu_add_rms_norm_v2_functional(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    out, scale, x = npu_add_rms_norm(args.x1, args.x2, args.gamma, args.epsilon)
    return scale, out, x


def _layer_norm(x: Tensor, dims: int, epsilon: float) -> tuple[Tensor, list[float], list[float]]:
    rows = _rows(x, dims)
    means = [float(row.mean()) for row in rows]
    scales = [1 / math.sqrt(float(row.var(correction=0)) + epsilon) for row in rows]
    out = [(row - mean) * scale for row, mean, scale in zip(rows, means, scales, strict=True)]
    return torch.stack(out).reshape(x.shape), means, scales


@by_schema
def npu_add_layer_norm(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = args.x1.double() + args.x2.double()
    out, means, scales = _layer_norm(x, args.gamma.dim(), args.epsilon)
    statistics = [_statistic(each, x, args.gamma.dim(), ones=1) for each in (means, scales)]
    return (out * args.gamma.double() + args.beta.double()).to(args.x1.dtype), *statistics, x.to(args.x1.dtype)


@by_schema
def npu_deep_norm(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    z = args.alpha * args.x.double() + args.gx.double()
    out, means, scales = _layer_norm(z, args.gamma.dim(), args.epsilon)
    statistics = [_statistic(each, args.x, args.gamma.dim()) for each in (means, scales)]
    return *statistics, (out * args.gamma.double() + args.beta.double()).to(args.x.dtype)


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


@by_schema
def npu_layernorm_grad(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    found = _layer_norm_grad(args.grad_out, args.input, len(args.normalized_shape), args.mean, args.rstd, args.weight)
    return found[0].to(args.input.dtype), found[1].to(args.input.dtype), found[2].to(args.input.dtype)


@by_schema
def npu_add_layer_norm_backward(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dy = torch.zeros_like(args.x1) if args.dy_opt is None else args.dy_opt
    of_x, of_gamma, of_beta = _layer_norm_grad(
        dy, args.x1.double() + args.x2.double(), args.gamma.dim(), args.mean, args.rstd, args.gamma
    )
    of_x = (of_x if args.dsum_opt is None else of_x + args.dsum_opt.double()).to(args.x1.dtype)
    return of_x, of_x.clone(), of_gamma.float(), of_beta.float()


@by_schema
def npu_deep_norm_backward(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    z = args.alpha * args.x.double() + args.gx.double()
    of_z, of_gamma, of_beta = _layer_norm_grad(args.dy, z, args.gamma.dim(), args.mean, args.rstd, args.gamma)
    return (args.alpha * of_z).to(args.x.dtype), of_z.to(args.x.dtype), of_beta.float(), of_gamma.float()


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


@by_schema
def npu_group_norm_silu(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _group_norm(args.input, args.weight, args.bias, args.group, args.eps)
    return (y / (1 + (-y).exp())).to(args.input.dtype), mean, scale


@by_schema
def npu_group_norm_swish(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _group_norm(
        args.input, args.weight, args.bias, args.num_groups, 1e-5 if args.eps is None else args.eps
    )
    slope = 1.0 if args.swish_scale is None else args.swish_scale
    return (y / (1 + (-slope * y).exp())).to(args.input.dtype), mean, scale


@by_schema
def npu_group_norm_swish_grad(args: Arguments) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    slope, channels = 1.0 if args.swish_scale is None else args.swish_scale, args.input.shape[1]
    size = channels // args.num_groups
    x, dy = (
        args.input.double().reshape(len(args.input), channels, -1),
        args.grad.double().reshape(len(args.input), channels, -1),
    )
    of_x, of_weight, of_bias = torch.zeros_like(x), torch.zeros(channels).double(), torch.zeros(channels).double()
    for n in range(len(x)):
        for g in range(args.num_groups):
            part, scale = slice(g * size, (g + 1) * size), float(args.rstd[n, g])
            normalized = (x[n, part] - float(args.mean[n, g])) * scale
            gamma = args.weight[part].double().unsqueeze(1)
            y = normalized * gamma + args.bias[part].double().unsqueeze(1)
            step = 1e-6
            above, below = ((y + sign * step) / (1 + (-slope * (y + sign * step)).exp()) for sign in (1, -1))
            of_y = dy[n, part] * (above - below) / (2 * step)
            of_weight[part] += (of_y * normalized).sum(1)
            of_bias[part] += of_y.sum(1)
            of_x[n, part] = _of_row((of_y * gamma).flatten(), normalized.flatten(), scale).reshape(normalized.shape)
    found = (of_x.reshape(args.input.shape), of_weight, of_bias)
    results = [
        each.to(args.input.dtype) if wanted else None for each, wanted in zip(found, args.grad_input_mask, strict=True)
    ]
    return results[0], results[1], results[2]


@by_schema
def npu_renorm_backward(args: Arguments) -> Tensor:
    out = torch.zeros_like(args.self, dtype=torch.float64)
    for place in range(args.self.shape[args.dim]):
        x, g = (
            args.self.select(args.dim, place).double().flatten(),
            args.grad.select(args.dim, place).double().flatten(),
        )
        largest = x.abs().max()
        norm = float(largest if args.p == math.inf else (x.abs() ** args.p).sum() ** (1 / args.p))
        slope = g
        if norm > args.maxnorm:
            total = norm + 1e-7
            is_largest = x.abs() == largest
            of_norm = x.sign() * (
                is_largest / is_largest.sum() if args.p == math.inf else x.abs() ** (args.p - 1) * norm ** (1 - args.p)
            )
            slope = args.maxnorm * (g / total - float(g @ x) / total**2 * of_norm)
        out.select(args.dim, place).copy_(slope.reshape(args.self.select(args.dim, place).shape))
    return out.to(args.self.dtype)
