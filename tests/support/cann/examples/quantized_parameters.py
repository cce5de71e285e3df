"""Calls of operators that prepare parameters of quantized products, or quantize into caches and for experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.draws import draw, positive, whole
from tests.support.cann.example_call import Call


def _packed_scales(generator: Generator, count: int) -> Tensor:
    bits = (positive(generator, count) * 0.01).view(torch.int32).long()
    return bits & 0xFFFFE000 | 1 << 46


def _trans(round_mode: int, *, with_offset: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        offset = draw(generator, 16) * 200 if with_offset else None
        return Call((draw(generator, 16), offset, round_mode))

    return call


def _int4pack(generator: Generator) -> Call:
    return Call((torch.randint(-8, 8, (5, 16), generator=generator, dtype=torch.int32),))


def _preprocess(generator: Generator) -> Call:
    weight = torch.randint(0, 256, (8, 4), generator=generator, dtype=torch.uint8)
    kinds = {"x_dtype": 5, "weight_dtype": 285, "weight_scale_dtype": 5}
    return Call((weight, draw(generator, 8, dtype=torch.float16)), kinds)


def _dequant_bias(dtype: torch.dtype) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = torch.randint(-10000, 10000, (4, 6), generator=generator, dtype=torch.int32)
        bias = (draw(generator, 6) * 20).to(dtype)
        options = {"output_dtype": torch.bfloat16}
        return Call((x, positive(generator, 6) * 0.01, positive(generator, 4), bias), options)

    return call


def _conv(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight = whole(generator, 2, 4, 6, 5), whole(generator, 6, 2, 3, 2)
        bias = torch.randint(-500, 500, (6,), generator=generator, dtype=torch.int32)
        geometry = ((2, 1), (1, 0), (1, 2), 2)
        return Call((x, weight, _packed_scales(generator, 6), *geometry), {"bias": bias, **kwargs})

    return call


def _scatter(indices: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        cache = whole(generator, 3, 8, 32)
        updates = draw(generator, len(indices), 2, 32, dtype=torch.bfloat16)
        scales = positive(generator, 1, 1, 32) * 0.1
        zeros = torch.randint(-5, 5, (1, 1, 32), generator=generator, dtype=torch.int32)
        return Call((cache, torch.tensor(indices, dtype=torch.int32), updates, scales, zeros))

    return call


def _routing(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = draw(generator, 5, 16)
        experts = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(5)]).int()
        options = {"expert_num": 4, "expert_tokens_num_mode": 2} | kwargs
        if options.get("quant_mode") == 0:
            options |= {"scale": torch.tensor([20.0]), "offset": torch.tensor([1.5])}
        elif options.pop("smooth", False):
            options["scale"] = positive(generator, 4, 16)
        return Call((x, experts), options)

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_trans_quant_param": _trans(0, with_offset=False),
    "npu_trans_quant_param-offset": _trans(1, with_offset=True),
    "npu_convert_weight_to_int4pack": _int4pack,
    "npu_weight_quant_preprocess": _preprocess,
    "npu_dequant_bias": _dequant_bias(torch.float32),
    "npu_dequant_bias-int32": _dequant_bias(torch.int32),
    "npu_quant_conv2d": _conv(output_dtype=torch.float16, offset_x=3),
    "npu_quant_scatter": _scatter([0, 3, 6]),
    "npu_quant_scatter-rows": _scatter([[2, 1], [0, 5]]),
    "npu_quant_scatter_": _scatter([1, 2, 3]),
    "npu_moe_init_routing_quant": _routing(active_num=8, smooth=True),
    "npu_moe_init_routing_quant-static": _routing(quant_mode=0, active_num=0, expert_tokens_num_mode=1),
    "npu_moe_init_routing_quant-capacity": _routing(
        drop_pad_mode=1, expert_capacity=2, expert_tokens_before_capacity_flag=True, expert_tokens_num_mode=0
    ),
}
