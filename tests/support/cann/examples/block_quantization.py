"""Calls of quantizing operators with scales in float, and of those that prepare such scales and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator

from tests.support.cann.draws import draw, positive, whole
from tests.support.cann.example_call import Call

_INT4, _E5M2, _E4M3 = torch.quint4x2, torch.float8_e5m2, torch.float8_e4m3fn
_HIF8 = 290


def _of_x(*shape: int, dtype: torch.dtype = torch.float16, **kwargs: Any) -> Callable[[Generator], Call]:
    return lambda generator: Call((draw(generator, *shape, dtype=dtype),), kwargs)


def _smooth(ends: list[int] | None, **kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = draw(generator, 5, 16, dtype=torch.bfloat16)
        if ends is None:
            smooth = {
                "smooth_scales": positive(generator, 5 if kwargs.get("quant_mode") == "perchannel" else 16).bfloat16()
            }
            return Call((x,), smooth | kwargs)
        groups = torch.tensor(ends, dtype=torch.int32)
        return Call(
            (x,), {"smooth_scales": positive(generator, len(ends), 16).bfloat16(), "group_index": groups} | kwargs
        )

    return call


def _grouped_blocks(generator: Generator) -> Call:
    x = draw(generator, 300, 70, dtype=torch.bfloat16)
    ends = torch.tensor([130, 130, 300], dtype=torch.int32)
    return Call((x, ends), {"row_block_size": 128, "col_block_size": 64, "dst_type": _E4M3})


def _quant_max(generator: Generator) -> Call:
    x = draw(generator, 6, 8, dtype=torch.bfloat16)
    return Call((x, torch.tensor([2.0, 30.0])), {"group_list": torch.tensor([2, 6]), "dst_dtype": _E5M2})


def _kronecker(**kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        sizes = ((4, 3, 32), (3, 3), (32, 32))
        return Call(tuple(draw(generator, *size, dtype=torch.bfloat16) for size in sizes), kwargs)

    return call


def _rotate(*shape: int, **kwargs: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = draw(generator, 4, 64, dtype=torch.bfloat16)
        return Call((x, draw(generator, *shape, dtype=torch.bfloat16)), kwargs)

    return call


def _quantize(dtype: Any, axis: int, div_mode: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = draw(generator, 2, 3, 16) * 10
        count = 16 if not div_mode and axis != -2 else x.shape[axis]
        return Call((x, positive(generator, count), None, dtype, axis, div_mode), {})

    return call


def _anti_quant(generator: Generator) -> Call:
    scale, offset = positive(generator, 16), draw(generator, 16)
    packed = torch.randint(-(2**31), 2**31 - 1, (3, 2), generator=generator, dtype=torch.int32)
    return Call((packed, scale), {"offset": offset, "dst_dtype": torch.float16, "src_dtype": _INT4})


def _anti_quant_int8(generator: Generator) -> Call:
    return Call((whole(generator, 3, 8), positive(generator, 8)), {"dst_dtype": torch.bfloat16})


def _group_quant(dtype: Any) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, scale = draw(generator, 6, 16) * 3, draw(generator, 3, 16)
        options = {"offset": torch.tensor([0.5]), "dst_dtype": dtype}
        return Call((x, scale, torch.tensor([1, 4, 6])), options)

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_dynamic_block_quant": _of_x(3, 200),
    "npu_dynamic_block_quant-float8": _of_x(2, 130, 70, dst_type=_E4M3, row_block_size=128, col_block_size=64),
    "npu_dynamic_block_quant-hifloat8": _of_x(3, 70, dst_type=_HIF8, round_mode="round", dst_type_max=15.0),
    "npu_dynamic_block_quant-bounded": _of_x(3, 70, min_scale=200.0),
    "npu_grouped_dynamic_block_quant": _grouped_blocks,
    "npu_quant_max": _quant_max,
    "npu_kronecker_quant": _kronecker(clip_ratio=0.7848),
    "npu_kronecker_quant-e2m1": _kronecker(dst_dtype=296),
    "npu_rotate_quant": _rotate(64, 64),
    "npu_rotate_quant-int4": _rotate(32, 32, dst_dtype=_INT4),
    "npu_rotate_quant-e2m1": _rotate(2, 32, 32, dst_dtype=296, scale_alg=2, dst_type_max=6.0),
    "npu_rotate_quant-e4m3": _rotate(32, 32, dst_dtype=_E4M3, scale_alg=1),
    "npu_quantize": _quantize(torch.qint8, 1, True),
    "npu_quantize-int4": _quantize(_INT4, -1, False),
    "npu_quantize-int32": _quantize(torch.int32, -2, False),
    "npu_anti_quant": _anti_quant,
    "npu_anti_quant-int8": _anti_quant_int8,
    "npu_dynamic_quant": _of_x(3, 16),
    "npu_dynamic_quant-int4": _of_x(2, 3, 16, dst_type=_INT4),
    "npu_dynamic_quant-float8": _of_x(3, 16, dst_type=_E5M2, quant_mode="pertensor"),
    "npu_dynamic_quant-hifloat8": _of_x(3, 16, dst_type=_HIF8, dst_type_max=224.0),
    "npu_dynamic_quant-smooth": _smooth(None, quant_mode="perchannel"),
    "npu_dynamic_quant-groups": _smooth([2, 5]),
    "npu_dynamic_quant_asymmetric": _of_x(3, 16),
    "npu_dynamic_quant_asymmetric-int4": _of_x(3, 16, dst_type=_INT4),
    "npu_dynamic_quant_asymmetric-channels": _of_x(3, 16, quant_mode="perchannel", dtype=torch.bfloat16),
    "npu_dynamic_quant_asymmetric-groups": _smooth([1, 5]),
    "npu_group_quant": _group_quant(torch.int8),
    "npu_group_quant-int4": _group_quant(_INT4),
}
