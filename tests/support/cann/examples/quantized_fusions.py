"""Calls of normalizations with quantized results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator

from tests.support.cann.draws import draw, positive
from tests.support.cann.example_call import Call

_E4M3, _E5M2, _INT4 = torch.float8_e4m3fn, torch.float8_e5m2, torch.quint4x2
_HIF8 = 290

_draw = partial(draw, dtype=torch.float16)


def _rms_norm_quant(dst_dtype: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, gamma, beta = (_draw(generator, *shape) for shape in ((3, 32), (32,), (32,)))
        parameters = (torch.tensor([20.0]).half(), torch.tensor([3], dtype=torch.int8))
        return Call((x, gamma, beta, *parameters), {"dst_dtype": dst_dtype})

    return call


def _rms_norm_quant_v2(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, gamma, beta = (_draw(generator, *shape) for shape in ((3, 32), (32,), (32,)))
        options = {"offset": torch.tensor([2.0]).half(), "beta": beta}
        return Call((x, gamma, torch.tensor([0.05]).half()), options | kwargs)

    return call


def _backward_quant(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        dy, x, gamma = (_draw(generator, *shape, dtype=torch.float32) for shape in ((4, 32), (4, 32), (32,)))
        rstd = torch.rsqrt(x.square().mean(-1) + 1e-6)
        offset = torch.tensor([3], dtype=torch.int32)
        return Call((dy, x, rstd, gamma, torch.tensor([0.05])), {"offset_x": offset, **kwargs})

    return call


def _add_rms_norm_quant(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x1, x2, gamma, beta = (_draw(generator, *shape) for shape in ((3, 32), (3, 32), (32,), (32,)))
        zeros = torch.randint(-10, 10, (32,), generator=generator, dtype=torch.int32)
        options = {"scales2": positive(generator, 32)} | kwargs
        return Call((x1, x2, gamma, positive(generator, 32), zeros, beta), options)

    return call


def _add_rms_norm(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x1, x2, gamma, beta = (
            _draw(generator, *shape, dtype=torch.bfloat16) for shape in ((3, 72), (3, 72), (72,), (72,))
        )
        return Call((x1, x2, gamma), {"beta": beta, **kwargs})

    return call


def _rms_norm_mx(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        return Call((_draw(generator, 3, 72), _draw(generator, 72)), {"beta": _draw(generator, 72), **kwargs})

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_rms_norm_quant": _rms_norm_quant(None),
    "npu_rms_norm_quant-int4": _rms_norm_quant(_INT4),
    "npu_rms_norm_quant_v2": _rms_norm_quant_v2(),
    "npu_rms_norm_quant_v2-float8": _rms_norm_quant_v2(dst_dtype=_E5M2, offset=None),
    "_npu_rms_norm_backward_quant": _backward_quant(),
    "_npu_rms_norm_backward_quant-hifloat8": _backward_quant(dst_type=_HIF8, div_mode=False),
    "npu_add_rms_norm_quant": _add_rms_norm_quant(),
    "npu_add_rms_norm_quant-float8": _add_rms_norm_quant(dst_type=_E4M3, scales2=None),
    "npu_add_rms_norm_dynamic_quant": _add_rms_norm(),
    "npu_add_rms_norm_dynamic_quant-int4": _add_rms_norm(y_dtype=_INT4, output_mask=[True, True]),
    "npu_rms_norm_dynamic_mx_quant": _rms_norm_mx(),
    "npu_rms_norm_dynamic_mx_quant-e4m3": _rms_norm_mx(dst_type=_E4M3, scale_alg=1),
    "npu_add_rms_norm_dynamic_mx_quant": _add_rms_norm(dst_type=_E5M2),
}
