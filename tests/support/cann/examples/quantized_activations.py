"""Calls of activations with quantized results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator

from tests.support.cann.draws import draw, positive
from tests.support.cann.example_call import Call

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_HIF8 = 290

_draw = partial(draw, dtype=torch.float16)


def _swiglu_quant(groups: list[int] | None, **kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = _draw(generator, 6, 32, dtype=torch.float32)
        count = 1 if groups is None else len(groups)
        options: dict[str, Any] = {"smooth_scales": positive(generator, count, 16) * 20, **kwargs}
        if groups is not None:
            options["group_index"] = torch.tensor(groups, dtype=torch.int32)
        if kwargs.get("quant_mode") == 0:
            options["offsets"] = _draw(generator, count, 16, dtype=torch.float32)
        return Call((x,), options)

    return call


def _dequant_swiglu(groups: list[int] | None, **kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = torch.randint(-300, 300, (6, 32), generator=generator, dtype=torch.int32)
        count = 1 if groups is None else len(groups)
        options = {"weight_scale": positive(generator, count, 32) * 0.02, "activation_scale": positive(generator, 6)}
        options["quant_scale"] = positive(generator, count, 16)
        if groups is None:
            options["bias"] = torch.randint(-50, 50, (32,), generator=generator, dtype=torch.int32)
        else:
            options["group_index"] = torch.tensor(groups)
        return Call((x,), options | kwargs)

    return call


def _static_dequant(generator: Generator) -> Call:
    x = torch.randint(-300, 300, (6, 32), generator=generator, dtype=torch.int32)
    options = {"weight_scale": positive(generator, 32) * 0.02, "activation_scale": positive(generator, 6, 1)}
    quantization = {"quant_scale": torch.tensor([0.05]), "quant_offset": torch.tensor([2.0])}
    return Call((x,), options | quantization | {"bias": _draw(generator, 32, dtype=torch.float32)})


def _gelu(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        options: dict[str, Any] = {"input_scale": positive(generator, 16).half() * 10, **kwargs}
        if kwargs.get("quant_mode") == "static":
            options["input_offset"] = _draw(generator, 16)
        return Call((_draw(generator, 4, 16),), options)

    return call


def _group_quant(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        options: dict[str, Any] = {"weight": positive(generator, 5, 1), "clamp_limit": 1.5, **kwargs}
        if kwargs.get("quant_mode") in (2, 3):
            options["group_index"] = torch.tensor([2, 3])
        if kwargs.get("quant_mode") == 2:
            options["scale"] = torch.tensor([3.0, 40.0])
        return Call((_draw(generator, 5, 512, dtype=torch.bfloat16),), options)

    return call


def _group_backward(generator: Generator) -> Call:
    grad, x, origin = (_draw(generator, 5, width, dtype=torch.float32) for width in (16, 32, 16))
    options = {"weight": positive(generator, 5, 1), "y_origin": origin, "group_index": torch.tensor([2, 2])}
    return Call((grad, x), options | {"clamp_limit": 0.7})


def _of_x(*shape: int, **kwargs: Any) -> Callable[[Generator], Call]:
    return lambda generator: Call((_draw(generator, *shape, dtype=torch.bfloat16),), kwargs)


def _swiglu_backward(generator: Generator) -> Call:
    x, grad = (_draw(generator, 70, width, dtype=torch.bfloat16) for width in (64, 32))
    return Call((x, grad), {"group_index": torch.tensor([33, 70]), "activate_left": False})


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_swiglu_quant": _swiglu_quant([2, 6], quant_mode=1),
    "npu_swiglu_quant-static": _swiglu_quant([2, 4], quant_mode=0, group_list_type=1, activate_left=True),
    "npu_swiglu_quant-no_groups": _swiglu_quant(None, quant_mode=1),
    "npu_dequant_swiglu_quant": _dequant_swiglu([2, 4], quant_mode=1, activate_left=True),
    "npu_dequant_swiglu_quant-interleaved": _dequant_swiglu(None, quant_mode=1, swiglu_mode=1),
    "npu_dequant_swiglu_quant-float8": _dequant_swiglu(None, quant_mode=1, swiglu_mode=3, dst_type=_E4M3),
    "npu_dequant_swiglu_quant-static": _static_dequant,
    "npu_gelu_quant": _gelu(),
    "npu_gelu_quant-static": _gelu(quant_mode="static", approximate="tanh"),
    "npu_gelu_quant-hifloat8": _gelu(dst_type=_HIF8, round_mode="round"),
    "npu_swiglu_group_quant": _group_quant(output_origin=True),
    "npu_swiglu_group_quant-exponents": _group_quant(quant_mode=1, round_scale=True, dst_type=_E4M3),
    "npu_swiglu_group_quant-static": _group_quant(quant_mode=2),
    "npu_swiglu_group_quant-dynamic": _group_quant(quant_mode=3),
    "npu_swiglu_group_quant_backward": _group_backward,
    "npu_swiglu_mx_quant": _of_x(3, 144),
    "npu_swiglu_mx_quant-variant": _of_x(3, 144, swiglu_mode=2, clamp_limit=1.0, dst_type=_E4M3, activate_left=True),
    "npu_swiglu_mx_quant-groups": _of_x(70, 32, axis=-2, group_index=torch.tensor([33, 37]), dst_type=_E5M2),
    "npu_swiglu_mx_quant-rows": _of_x(64, 16, activate_dim=-2, axis=0, dst_type=297),
    "npu_swiglu_mx_quant_with_dual_axis": _of_x(70, 128),
    "npu_swiglu_mx_quant_with_dual_axis-groups": _of_x(70, 64, group_index=torch.tensor([33, 70]), scale_alg=0),
    "_npu_swiglu_backward_mx_quant_with_dual_axis": _swiglu_backward,
}
