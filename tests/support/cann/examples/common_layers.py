"""Calls of norms, products, rotations, transpositions, choices of experts and steps of Adam."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.support.cann.example_call import Call

Example = Callable[[torch.Generator], Call]


def _randn(
    generator: torch.Generator, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float16
) -> list[torch.Tensor]:
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def _rms_norm(generator: torch.Generator) -> Call:
    return Call(tuple(_randn(generator, (4, 5, 32), (32,), dtype=torch.float32)), differentiate=True)


def _rms_norm_half(generator: torch.Generator) -> Call:
    return Call((*_randn(generator, (4, 32), (32,)), 1e-5), differentiate=True)


def _layer_norm(generator: torch.Generator) -> Call:
    x, weight, bias = _randn(generator, (1, 4, 8), (8,), (8,), dtype=torch.float32)
    return Call((x, [8], weight, bias, 1e-5))


def _linear(generator: torch.Generator) -> Call:
    return Call(tuple(_randn(generator, (4, 16), (8, 16), (8,))), differentiate=True)


def _rotary(mode: str) -> Example:
    def call(generator: torch.Generator) -> Call:
        x, angles = _randn(generator, (2, 4, 3, 64), (1, 4, 1, 64), dtype=torch.float32)
        return Call((x, angles.cos(), angles.sin(), mode), differentiate=True)

    return call


def _transpose(transpose_first: bool) -> Example:
    def call(generator: torch.Generator) -> Call:
        shape = [2, 4, 18] if transpose_first else [2, 6, 3, 4]
        x = torch.randn(2, 3, 4, 6, generator=generator)
        return Call((x, [0, 2, 1, 3], shape, transpose_first), differentiate=True)

    return call


def _experts(generator: torch.Generator) -> Call:
    return Call((torch.randn(6, 8, generator=generator), torch.tensor([0, 1, 0, 0, 0, 1]).bool(), 2))


def _adam(generator: torch.Generator) -> Call:
    var, m, v, grad = _randn(generator, *[(3, 5)] * 4, dtype=torch.float32)
    return Call((0.9, 0.99, 0.01, 0.9, 0.99, 1e-8, grad, False, False), {"out": (var, m, v.square())})


def _adam_w(*, amsgrad: bool = False, maximize: bool = False) -> Example:
    def call(generator: torch.Generator) -> Call:
        var, m, v, grad, largest = _randn(generator, *[(3, 5)] * 5, dtype=torch.float32)
        bound = largest.square() if amsgrad else None
        arguments = (0.9, 0.99, 0.01, 0.1, 0.9, 0.99, 1e-8, grad, bound, amsgrad, maximize)
        return Call(arguments, {"out": (var, m, v.square())})

    return call


EXAMPLES: dict[str, Example] = {
    "npu_rms_norm": _rms_norm,
    "npu_rms_norm-half": _rms_norm_half,
    "npu_layer_norm_eval": _layer_norm,
    "npu_linear": _linear,
    "npu_rotary_mul": _rotary("half"),
    "npu_rotary_mul-interleave": _rotary("interleave"),
    "npu_confusion_transpose": _transpose(transpose_first=False),
    "npu_confusion_transpose-first": _transpose(transpose_first=True),
    "npu_moe_gating_top_k_softmax": _experts,
    "npu_apply_adam": _adam,
    "npu_apply_adam_w": _adam_w(),
    "npu_apply_adam_w-maximized": _adam_w(maximize=True),
    "npu_apply_adam_w-amsgrad": _adam_w(amsgrad=True, maximize=True),
}
