"""Calls of the first fused attentions: op-plugin's tests' forms, with fewer heads and tokens.

Those that take a mask of floats have a gradient, but not with respect to it, so that they are not differentiated here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.operators import legacy_attention

_BATCH, _HEADS, _ROWS, _SIZE = 2, 2, 8, 16
_WIDTH = _HEADS * _SIZE
_SCALE = 0.25


def _draw(generator: Generator, *shape: int, dtype: torch.dtype = torch.float16, reach: float = 2.0) -> Tensor:
    return ((torch.rand(shape, generator=generator) * 2 - 1) * reach).to(dtype)


def _heads(generator: Generator) -> tuple[Tensor, ...]:
    return tuple(_draw(generator, _BATCH, _HEADS, _ROWS, _SIZE) for _ in range(3))


def _score(generator: Generator) -> Call:
    hidden = torch.where(torch.arange(_ROWS) < 6, 0.0, -10000.0).half().expand(_BATCH, 1, _ROWS, _ROWS)
    return Call((*_heads(generator), hidden.contiguous(), _SCALE, 1.0))


def _score_gradient(keep: float) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        q, k, v = _heads(generator)
        weights = torch.rand(_BATCH, _HEADS, _ROWS, _ROWS, generator=generator).softmax(-1).half()
        mask = (torch.rand(weights.numel(), generator=generator) < keep).to(torch.uint8)
        return Call((_draw(generator, _BATCH * _ROWS, _WIDTH), weights, q, k, v, mask, _SCALE, keep))

    return call


def _layernorm_qkv(biased: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = _draw(generator, _BATCH * _ROWS, _WIDTH, reach=6)
        kernels = [_draw(generator, _WIDTH, _WIDTH, reach=0.1) for _ in range(3)]
        rows = [_draw(generator, _WIDTH, reach=1) for _ in range(5 if biased else 2)]
        return Call((x, *kernels, *rows), {"seq_len": _ROWS, "num_heads": _HEADS})

    return call


def _qkv_gradient(generator: Generator) -> Call:
    rows = [_draw(generator, _BATCH * _ROWS, _WIDTH) for _ in range(5)]
    kernels = [_draw(generator, _WIDTH, _WIDTH, reach=0.1) for _ in range(3)]
    return Call((*rows[:3], *kernels, *rows[3:]))


def _layer(generator: Generator, biased: bool, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, list[Tensor | None]]:
    inputs = [_draw(generator, _BATCH * rows, _WIDTH, dtype=dtype, reach=1) for rows in (_ROWS, 2 * _ROWS, 2 * _ROWS)]
    weights = [_draw(generator, _WIDTH, _WIDTH, dtype=dtype, reach=0.3) for _ in range(4)]
    biases = [_draw(generator, _WIDTH, dtype=dtype, reach=0.5) if biased else None for _ in range(4)]
    mask = _draw(generator, _BATCH, _HEADS, _ROWS, 2 * _ROWS, dtype=dtype, reach=1)
    return [*inputs, *weights], mask, biases


def _attention_layer(biased: bool, share: float) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        tensors, mask, biases = _layer(generator, biased, torch.float16)
        bits = torch.randint(256, (_BATCH * _HEADS * _ROWS * 2 * _ROWS // 8,), generator=generator).to(torch.uint8)
        sizes = (_HEADS, _SIZE, 2 * _ROWS, _ROWS, share, True)
        return Call((*tensors[:6], mask, tensors[6], *biases, bits if share else None, *sizes))

    return call


def _attention_layer_gradient(share: float) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        tensors, mask, biases = _layer(generator, True, torch.float32)
        bits = torch.randint(256, (_BATCH * _HEADS * _ROWS * 2 * _ROWS // 8,), generator=generator).to(torch.uint8)
        sizes = (_HEADS, _SIZE, 2 * _ROWS, _ROWS, share, True)
        forward = (*tensors[:6], mask, tensors[6], *biases, bits if share else None, *sizes)
        _, bits, *saved = legacy_attention.npu_multi_head_attention(*forward)
        grad = _draw(generator, _BATCH * _ROWS, _WIDTH, dtype=torch.float32)
        return Call((*tensors, *biases, *saved, grad, bits, *sizes))

    return call


def _windows(shapes: tuple[tuple[int, ...], ...], **options: float) -> Callable[[Generator], Call]:
    return lambda generator: Call(
        tuple(_draw(generator, *shape, dtype=torch.float32) if shape else None for shape in shapes), dict(options)
    )


def _softmax_gradient(generator: Generator) -> Call:
    weights = _draw(generator, 2, 6, 8, dtype=torch.float32).softmax(-1)
    return Call((weights, *(_draw(generator, 2, rows, 4, dtype=torch.float32) for rows in (6, 8))))


def _add_softmax(generator: Generator) -> Call:
    return Call((*(_draw(generator, 2, 4, 8, 8) for _ in range(2)), 0.5, 0.0, -1), {}, True)


def _add_softmax_gradient(generator: Generator) -> Call:
    weights = _draw(generator, 2, 4, 8, 8).float().softmax(-1).half()
    mask = (torch.rand(weights.numel(), generator=generator) < 0.75).to(torch.uint8)
    return Call((_draw(generator, 2, 4, 8, 8), mask, weights, 0.5, 0.25, -1))


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_fused_attention_score": _score,
    "npu_fused_attention_score_fwd": _score,
    "npu_fused_attention_score_backward": _score_gradient(1.0),
    "npu_fused_attention_score_backward-dropout": _score_gradient(0.5),
    "npu_fused_attention_score_grad": _score_gradient(0.75),
    "npu_fused_attention_layernorm_qkv_fwd": _layernorm_qkv(True),
    "npu_fused_attention_layernorm_qkv_fwd-without_bias": _layernorm_qkv(False),
    "npu_fused_attention_qkv_grad": _qkv_gradient,
    "npu_multi_head_attention": _attention_layer(True, 0.0),
    "npu_multi_head_attention-without_bias": _attention_layer(False, 0.0),
    "npu_multi_head_attention-dropout": _attention_layer(True, 0.5),
    "npu_multi_head_attention_backward": _attention_layer_gradient(0.0),
    "npu_multi_head_attention_backward-dropout": _attention_layer_gradient(0.5),
    "npu_masked_softmax_with_rel_pos_bias": _windows(((1, 2, 3, 4, 4), (1, 2, 1, 4, 4), (1, 1, 3, 4, 4))),
    "npu_masked_softmax_with_rel_pos_bias-flat": _windows(((6, 3, 4, 4), (2, 4, 4), (3, 4, 4)), scale_value=0.5),
    "npu_masked_softmax_with_rel_pos_bias-unmasked": _windows(((6, 3, 4, 4), (), (3, 4, 4))),
    "npu_attn_softmax_": lambda generator: Call((_draw(generator, 2, 6, 8, dtype=torch.float32),)),
    "npu_attn_softmax_backward_": _softmax_gradient,
    "npu_dropout_with_add_softmax": _add_softmax,
    "npu_dropout_with_add_softmax_backward": _add_softmax_gradient,
}
