"""Calls of operators with shared exponents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call


def _draw(generator: Generator, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    spread = torch.randn(shape, generator=generator) * torch.exp2(
        torch.randn((*shape[:-1], 1), generator=generator) * 3
    )
    return spread.to(dtype)


def _bytes(generator: Generator, *shape: int, low: int = 0, high: int = 256) -> Tensor:
    return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8)


def _of_x(*shape: int, dtype: torch.dtype = torch.bfloat16, **kwargs: Any) -> Callable[[Generator], Call]:
    return lambda generator: Call((_draw(generator, *shape, dtype=dtype),), kwargs)


def _grouped(ends: list[int], columns: int, **kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        return Call((_draw(generator, ends[-1], columns), torch.tensor(ends, dtype=torch.int32)), kwargs)

    return call


def _anti(generator: Generator) -> Call:
    x = torch.randn(4, 70, generator=generator).to(torch.float8_e4m3fn)
    return Call((x, _bytes(generator, 4, 2, 2, low=120, high=134)), {})


def _anti_packed(generator: Generator) -> Call:
    scales = _bytes(generator, 1, 6, 2, low=124, high=130)
    return Call((_bytes(generator, 40, 3), scales), {"axis": 0, "src_type": 296, "dst_type": torch.float32})


def _dual_level_matmul(generator: Generator) -> Call:
    levels = [torch.rand(3, 2, generator=generator), torch.rand(2, 5, generator=generator)]
    exponents = [_bytes(generator, rows, 9, 2, low=124, high=130) for rows in (3, 5)]
    operands = (_bytes(generator, 3, 288), _bytes(generator, 5, 288))
    return Call((*operands, *levels, *exponents), {"bias": torch.randn(5, generator=generator)})


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_dynamic_mx_quant": _of_x(2, 100),
    "npu_dynamic_mx_quant-e1m2": _of_x(2, 64, dst_type=297, round_mode="floor"),
    "npu_dynamic_mx_quant-e4m3": _of_x(3, 70, dst_type=torch.float8_e4m3fn),
    "npu_dynamic_mx_quant-e5m2": _of_x(40, 6, axis=0, dst_type=torch.float8_e5m2, dtype=torch.float16),
    "npu_dynamic_mx_quant-rounded_up": _of_x(2, 70, dst_type=292, scale_alg=1, max_low_bound=0.5),
    "npu_dynamic_mx_quant-away_from_zero": _of_x(2, 64, 4, axis=1, round_mode="round"),
    "npu_dynamic_mx_quant-significand": _of_x(4, 64, scale_alg=2, dst_type_max=7.0),
    "npu_dynamic_mx_quant-own_largest": _of_x(4, 64, scale_alg=2, dst_type_max=9.0),
    "npu_dynamic_mx_quant-large_blocks": _of_x(2, 150, block_size=64),
    "npu_dynamic_mx_quant_with_dual_axis": _of_x(40, 34, dst_type=torch.float8_e4m3fn),
    "npu_dynamic_mx_quant_with_dual_axis-e2m1": _of_x(2, 33, 36, scale_alg=2, dst_type_max=6.0),
    "npu_anti_mx_quant": _anti,
    "npu_anti_mx_quant-e2m1": _anti_packed,
    "npu_dynamic_block_mx_quant": _of_x(40, 70, dst_type=torch.float8_e4m3fn),
    "npu_dynamic_block_mx_quant-e2m1": _of_x(2, 33, 34, scale_alg=2),
    "npu_dynamic_dual_level_mx_quant": _of_x(2, 600),
    "npu_dual_level_quant_matmul": _dual_level_matmul,
    "npu_grouped_dynamic_mx_quant": _grouped([20, 60, 60, 70], 3, dst_type=torch.float8_e4m3fn),
    "npu_grouped_dynamic_mx_quant-e2m1": _grouped([33, 70], 4, dst_type=296, scale_alg=2, dst_type_max=8.0),
}
