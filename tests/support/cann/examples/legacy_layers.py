"""Calls of older single layers: the documentation's examples, smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call
from tests.support.cann.operators import legacy_layers


def _masked(dtype: torch.dtype, differentiate: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        mask = torch.randint(256, (32,), generator=generator).to(torch.uint8)
        return Call((draw(generator, 5, 29, dtype=dtype), mask, 0.3), {}, differentiate)

    return call


def _adam(*scalars: Any, dtype: torch.dtype = torch.float32) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        state = (draw(generator, 300, dtype=dtype), draw(generator, 300, dtype=dtype) / 10)
        out = (*state, torch.rand(300, generator=generator).to(dtype))
        return Call((*scalars[:4], draw(generator, 300, dtype=dtype) / 100, *scalars[4:]), {"out": out})

    return call


def _calibration(with_offset: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        data = draw(generator, 2, 2, 30, 4)
        low, high = data.min().view(1), data.max().view(1)
        counts = torch.histc(data, 128, float(low), float(high)).cumsum(0).int()
        return Call((data, low, high, counts, 0.999999, 0.999999, 0.7, 1.3, 0.01, with_offset))

    return call


def _normalized(kind: int) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        lengths = torch.randint(3, 7, (8,), generator=generator).int()
        return Call((torch.rand(8, 3, 6, generator=generator) * 9 + 1, lengths, kind))

    return call


def _geometry(stride: int = 1, dilation: int = 1, groups: int = 1, parts: int = 1) -> tuple[Any, ...]:
    return [3, 3], [1, 1, stride, stride], [1, 1, 1, 1], [1, 1, dilation, dilation], groups, parts


def _deformable_tensors(generator: Generator, rows: int, groups: int, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = draw(generator, 2, 4, 6, 6), draw(generator, 4, 4 // groups, 3, 3)
    return x, weight, draw(generator, 2, 27 * parts, rows, rows)


def _deformable(rows: int, biased: bool, **options: int) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        tensors = _deformable_tensors(generator, rows, options.get("groups", 1), options.get("parts", 1))
        return Call((*tensors, draw(generator, 4) if biased else None, *_geometry(**options)), {}, biased)

    return call


def _deformable_gradient(rows: int, **options: int) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight, offset = _deformable_tensors(generator, rows, options.get("groups", 1), options.get("parts", 1))
        geometry = _geometry(**options)
        y, samples = legacy_layers.npu_deformable_conv2d(x, weight, offset, None, *geometry)
        return Call((x, draw(generator, *y.shape), samples, weight, offset, *geometry))

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_dropout_backward": _masked(torch.float16, False),
    "npu_dropout_do_mask": _masked(torch.float32, True),
    "npu_dropout_do_mask-bfloat16": _masked(torch.bfloat16, False),
    "npu_bert_apply_adam": _adam(0.001, 0.9, 0.99, 1e-6, -1.0, 0.0, 0.0),
    "npu_bert_apply_adam-clipped": _adam(0.01, 0.9, 0.999, 1e-6, 1.0, 2.5, 0.01),
    "npu_bert_apply_adam-mbart": _adam(0.001, 0.9, 0.99, 1e-6, -1.0, 0.0, 0.01, 0.002, 1),
    "npu_ifmr": _calibration(False),
    "npu_ifmr-offset": _calibration(True),
    "npu_normalize_batch": _normalized(0),
    "npu_normalize_batch-all_features": _normalized(1),
    "npu_deformable_conv2d": _deformable(6, True),
    "npu_deformable_conv2d-groups": _deformable(3, False, stride=2, groups=2, parts=2),
    "npu_deformable_conv2d-dilated": _deformable(4, True, dilation=2),
    "npu_deformable_conv2dbk": _deformable_gradient(6),
    "npu_deformable_conv2dbk-groups": _deformable_gradient(3, stride=2, groups=2, parts=2),
}
