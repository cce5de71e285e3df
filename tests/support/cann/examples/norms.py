"""Calls of normalizations and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def _gamma(generator: torch.Generator, *shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    return (torch.rand(shape, generator=generator) + 0.5).to(dtype)


def _sum_normed(dtype: torch.dtype) -> Callable[[torch.Generator], Call]:
    def example(g: torch.Generator) -> Call:
        tensors = (draw(g, 3, 4, 8, dtype=dtype), draw(g, 3, 4, 8, dtype=dtype), _gamma(g, 8, dtype=dtype))
        return Call(tensors)

    return example


def _layer(g: torch.Generator, *, wide: bool) -> Call:
    shape = (4, 8) if wide else (8,)
    tensors = (draw(g, 3, 4, 8), draw(g, 3, 4, 8), _gamma(g, *shape), draw(g, *shape))
    return Call(tensors, {"additional_output": wide}, differentiate=True)


def _deep(g: torch.Generator) -> Call:
    tensors = (
        draw(g, 3, 8, dtype=HALF),
        draw(g, 3, 8, dtype=HALF),
        draw(g, 8, dtype=HALF),
        _gamma(g, 8, dtype=HALF),
    )
    return Call(tensors, differentiate=True)


def _statistics(x: Tensor, dims: list[int], epsilon: float = 1e-5) -> tuple[Tensor, Tensor]:
    wide = x.double()
    mean = wide.mean(dims, keepdim=True)
    return mean.float(), (wide.var(dims, correction=0, keepdim=True) + epsilon).rsqrt().float()


def _layer_grad(g: torch.Generator, *, weighted: bool) -> Call:
    x, grad = draw(g, 5, 2, 4), draw(g, 5, 2, 4)
    weights = (_gamma(g, 2, 4), draw(g, 2, 4)) if weighted else (None, None)
    return Call((grad, x, [2, 4], *_statistics(x, [-2, -1]), *weights))


def _sum_grad(g: torch.Generator, *, first: bool) -> Call:
    x1, x2, grad = draw(g, 5, 8), draw(g, 5, 8), draw(g, 5, 8)
    mean, rstd = _statistics(x1 + x2, [-1])
    if first:
        return Call((grad, x1, x2, rstd, mean, _gamma(g, 8), None))
    return Call((None, x1, x2, rstd, mean, _gamma(g, 8), grad))


def _deep_grad(g: torch.Generator) -> Call:
    dy, x, gx = (draw(g, 5, 8) for _ in range(3))
    return Call((dy, x, gx, _gamma(g, 8), *_statistics(0.3 * x + gx, [-1])))


def _group(g: torch.Generator, dtype: torch.dtype, *, swish: bool) -> Call:
    x, weight, bias = draw(g, 2, 6, 5, dtype=dtype), _gamma(g, 6, dtype=dtype), draw(g, 6, dtype=dtype)
    return Call((x, 3, weight, bias, 1e-5, 0.8) if swish else (x, weight, bias, 3), differentiate=swish)


def _group_grad(g: torch.Generator, *, mask: list[bool]) -> Call:
    x, grad = draw(g, 2, 6, 5), draw(g, 2, 6, 5)
    mean, rstd = (each.reshape(2, 3) for each in _statistics(x.reshape(2, 3, -1), [-1]))
    return Call((grad, x, 3, _gamma(g, 6), draw(g, 6), mean, rstd, mask, 0.8))


EXAMPLES: dict[str, Callable[[torch.Generator], Call]] = {
    "npu_gemma_rms_norm": lambda g: Call((draw(g, 3, 4, 8), draw(g, 8))),
    "npu_gemma_rms_norm-wide": lambda g: Call((draw(g, 3, 4, 8, dtype=BRAIN), draw(g, 4, 8, dtype=BRAIN))),
    "npu_add_rms_norm": _sum_normed(HALF),
    "npu_add_rms_norm_cast": _sum_normed(HALF),
    "npu_add_rms_norm_v2": _sum_normed(BRAIN),
    "npu_add_rms_norm_v2_functional": _sum_normed(SINGLE),
    "npu_add_layer_norm": lambda g: _layer(g, wide=False),
    "npu_add_layer_norm-both": lambda g: _layer(g, wide=True),
    "npu_add_layer_norm_backward": lambda g: _sum_grad(g, first=True),
    "npu_add_layer_norm_backward-of_sum": lambda g: _sum_grad(g, first=False),
    "npu_layernorm_grad": lambda g: _layer_grad(g, weighted=True),
    "npu_layernorm_grad-unweighted": lambda g: _layer_grad(g, weighted=False),
    "npu_deep_norm": _deep,
    "npu_deep_norm_backward": _deep_grad,
    "npu_group_norm_silu": lambda g: _group(g, HALF, swish=False),
    "npu_group_norm_swish": lambda g: _group(g, SINGLE, swish=True),
    "npu_group_norm_swish_grad": lambda g: _group_grad(g, mask=[True, True, True]),
    "npu_group_norm_swish_grad-masked": lambda g: _group_grad(g, mask=[False, True, False]),
    "npu_renorm_backward": lambda g: Call((draw(g, 3, 4, 2), draw(g, 3, 4, 2), 2.0, 1, 2.0)),
    "npu_renorm_backward-third": lambda g: Call((draw(g, 3, 4), draw(g, 3, 4), 3.0, 0, 1.0)),
    "npu_renorm_backward-largest": lambda g: Call((draw(g, 3, 4), draw(g, 3, 4), math.inf, 1, 1.0)),
}
