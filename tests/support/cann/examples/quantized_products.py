"""Calls of products of quantized matrices, with small shapes of the documentation's kinds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.packed import pack_int4, pack_scale

E8M0 = 293


def int8(g: Generator, *shape: int, low: int = -128, high: int = 128) -> Tensor:
    """Return whole numbers of 8 bits."""
    return torch.randint(low, high, shape, generator=g, dtype=torch.int8)


def int4(g: Generator, *shape: int) -> Tensor:
    """Return whole numbers of 4 bits, eight in each int32 of the last dimension."""
    return pack_int4(int8(g, *shape, low=-8, high=8))


def int32(g: Generator, *shape: int) -> Tensor:
    """Return a bias of whole numbers."""
    return torch.randint(-500, 500, shape, generator=g, dtype=torch.int32)


def single(g: Generator, *shape: int) -> Tensor:
    """Return normal float32."""
    return torch.randn(shape, generator=g)


def positive(g: Generator, *shape: int, at: float = 1.0) -> Tensor:
    """Return scales around ``at``."""
    return (torch.rand(shape, generator=g) + 0.5) * at


def half(g: Generator, *shape: int) -> Tensor:
    """Return normal float16."""
    return single(g, *shape).half()


def float8(g: Generator, *shape: int) -> Tensor:
    """Return normal floats of 8 bits."""
    return single(g, *shape).to(torch.float8_e4m3fn)


def powers(g: Generator, *shape: int) -> Tensor:
    """Return exponents of scales, as bytes."""
    return torch.randint(120, 130, shape, generator=g, dtype=torch.uint8)


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_quant_matmul": lambda g: Call(
        (int8(g, 1, 6, 24, low=-5, high=5), int8(g, 3, 24, 8, low=-5, high=5), positive(g, 8, at=0.2)),
        {"offset": single(g, 8) * 3, "bias": int32(g, 3, 1, 8)},
    ),
    "npu_quant_matmul-packed": lambda g: Call(
        (int8(g, 6, 24), int8(g, 24, 8), pack_scale(positive(g, 8, at=1e-3), single(g, 8) * 9)),
        {"bias": int32(g, 8)},
    ),
    "npu_quant_matmul-float16": lambda g: Call(
        (int8(g, 2, 6, 24), int8(g, 24, 8), pack_scale(positive(g, 1, at=1e-3))), {"output_dtype": torch.float16}
    ),
    "npu_quant_matmul-tokens": lambda g: Call(
        (int8(g, 6, 24), int8(g, 8, 24).mT, positive(g, 8, at=1e-3).bfloat16()),
        {"pertoken_scale": positive(g, 6), "bias": single(g, 8).bfloat16(), "output_dtype": torch.bfloat16},
    ),
    "npu_quant_matmul-int32": lambda g: Call(
        (int8(g, 6, 24), int8(g, 24, 8), positive(g, 8)), {"bias": int32(g, 8), "output_dtype": torch.int32}
    ),
    "npu_quant_matmul-int4": lambda g: Call(
        (int4(g, 6, 24), int4(g, 24, 16), positive(g, 16, at=1e-2)),
        {"bias": int32(g, 16), "output_dtype": torch.float16},
    ),
    "npu_quant_matmul-int4_by_rows": lambda g: Call(
        (int4(g, 6, 24), int4(g, 5, 24).mT, positive(g, 5, at=1e-2)), {"output_dtype": torch.float16}
    ),
    "npu_quant_matmul-int4_weight": lambda g: Call(
        (int8(g, 6, 32), int4(g, 32, 16), pack_scale(positive(g, 2, 16, at=1e-2))),
        {"pertoken_scale": positive(g, 6, 1), "offset": single(g, 16), "output_dtype": torch.bfloat16},
    ),
    "npu_quant_matmul-blocks": lambda g: Call(
        (float8(g, 4, 48), float8(g, 48, 6), positive(g, 3, 2)),
        {"pertoken_scale": positive(g, 2, 3), "output_dtype": torch.float32, "group_sizes": [2, 3, 16]},
    ),
    "npu_quant_matmul-mx": lambda g: Call(
        (float8(g, 4, 96), float8(g, 96, 6), powers(g, 2, 6, 2)),
        {
            "pertoken_scale": powers(g, 4, 2, 2), "pertoken_scale_dtype": E8M0, "scale_dtype": E8M0,
            "output_dtype": torch.bfloat16, "bias": single(g, 6), "group_sizes": [1, 1, 32],
        },
    ),
    "npu_quant_matmul-float8": lambda g: Call(
        (float8(g, 4, 16), float8(g, 16, 6), positive(g, 6)),
        {"pertoken_scale": positive(g, 4), "bias": single(g, 6), "output_dtype": torch.float16},
    ),
    "npu_quant_matmul-y_scale": lambda g: Call(
        (float8(g, 4, 64), int8(g, 64, 6, low=-6, high=7), positive(g, 2, 6).bfloat16()),
        {"y_scale": pack_scale(positive(g, 1, 6)), "output_dtype": torch.bfloat16, "group_sizes": [0, 0, 32]},
    ),
    "npu_weight_quant_batchmatmul": lambda g: Call(
        (half(g, 6, 32), int8(g, 32, 8, low=-8, high=8), half(g, 1, 8), half(g, 1, 8)),
        {"quant_scale": pack_scale(positive(g, 1, 8, at=0.2), single(g, 1, 8) * 4)},
    ),
    "npu_weight_quant_batchmatmul-transposed": lambda g: Call(
        (half(g, 6, 32), int8(g, 8, 32, low=-8, high=8).mT, half(g, 8, 1).mT, half(g, 8, 1).mT), {"bias": half(g, 8)},
        differentiate=True,
    ),
    "npu_weight_quant_batchmatmul-packed": lambda g: Call(
        (
            half(g, 6, 64), int8(g, 8, 64, low=-8, high=8).mT, pack_scale(positive(g, 8)).reshape(8, 1).mT,
            torch.randint(-9, 9, (8, 1), generator=g, dtype=torch.int32).mT,
        ),
    ),
    "npu_weight_quant_batchmatmul-groups": lambda g: Call(
        (half(g, 6, 96).bfloat16(), int4(g, 96, 8), half(g, 3, 8).bfloat16(), half(g, 3, 8).bfloat16()),
        {"bias": single(g, 8), "antiquant_group_size": 32},
    ),
    "npu_quant_matmul_gelu": lambda g: Call(
        (int8(g, 6, 24, low=-5, high=5), int8(g, 24, 8, low=-5, high=5), positive(g, 6, at=0.05), positive(g, 8)),
        {"bias": single(g, 8) * 0.1},
    ),
    "npu_quant_matmul_gelu-tanh": lambda g: Call(
        (int4(g, 6, 24), int4(g, 24, 8), positive(g, 6, at=0.05), positive(g, 8).bfloat16()),
        {"bias": int32(g, 8) // 10, "approximate": "gelu_tanh"},
    ),
    "npu_quant_matmul_reduce_sum": lambda g: Call(
        (int8(g, 2, 3, 16), int8(g, 2, 16, 5)),
        {"x1_scale": positive(g, 2, 3, at=1e-2), "x2_scale": positive(g, 5).bfloat16()},
    ),
    "npu_quant_matmul_dequant": lambda g: Call(
        (half(g, 6, 32), int8(g, 16, 32), positive(g, 16, at=1e-2)), {"smooth_scale": positive(g, 32).half()}
    ),
    "npu_quant_matmul_dequant-pertensor": lambda g: Call(
        (half(g, 6, 32), int8(g, 16, 32), pack_scale(positive(g, 16, at=1e-3))),
        {"x_scale": positive(g, 1, at=0.02).half(), "quant_mode": "pertensor"},
    ),
    "npu_transpose_quant_batchmatmul": lambda g: Call(
        (float8(g, 4, 3, 16), float8(g, 3, 16, 6), 5),
        {
            "x1_scale": positive(g, 4), "x2_scale": positive(g, 6), "perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2],
            "perm_y": [1, 0, 2],
        },
    ),
    "npu_add_quant_matmul": lambda g: Call(
        (single(g, 4, 6), float8(g, 16, 4).mT, float8(g, 16, 6), positive(g, 1)), {"x1_scale": positive(g, 1)}
    ),
    "npu_add_quant_matmul_": lambda g: Call(
        (single(g, 4, 6), float8(g, 96, 4).mT, float8(g, 96, 6), powers(g, 2, 6, 2)),
        {
            "x1_scale": powers(g, 2, 4, 2).transpose(0, 1), "x1_scale_dtype": E8M0, "x2_scale_dtype": E8M0,
            "group_sizes": [1, 1, 32],
        },
    ),
}  # fmt: skip

# Scales of this dtype, for which the operator has no number, are there from torch 2.7 on.
if hasattr(torch, "float8_e8m0fnu"):
    EXAMPLES["npu_transpose_quant_batchmatmul-mx"] = lambda g: Call(
        (float8(g, 4, 2, 64), float8(g, 2, 6, 64), 15),
        {
            "x1_scale": torch.exp2(single(g, 4, 2, 1, 2).round()).to(torch.float8_e8m0fnu),
            "x2_scale": torch.exp2(single(g, 2, 6, 1, 2).round()).to(torch.float8_e8m0fnu),
            "perm_x1": [1, 0, 2],
            "perm_x2": [0, 2, 1],
            "perm_y": [1, 0, 2],
            "group_sizes": [0, 0, 32],
        },
    )
