"""Calls of matrix products with what comes before and behind them, with small shapes of the documentation's kinds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from tests.support.cann.example_call import Call
from tests.support.cann.examples.quantized_products import half, int8, int32, positive, single
from tests.support.cann.packed import pack_scale

EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_transpose_batchmatmul": lambda g: Call(
        (half(g, 4, 3, 16), half(g, 3, 16, 6)), {"perm_x1": [1, 0, 2], "perm_y": [1, 0, 2]}, differentiate=True
    ),
    "npu_transpose_batchmatmul-int8": lambda g: Call(
        (half(g, 4, 3, 16), half(g, 3, 16, 6)),
        {"scale": pack_scale(positive(g, 18, at=8), single(g, 18) * 3), "perm_x1": (1, 0, 2), "perm_y": (1, 0, 2)},
    ),
    "npu_transpose_batchmatmul-split": lambda g: Call(
        (half(g, 4, 3, 16).bfloat16(), half(g, 4, 6, 16).bfloat16()), {"perm_x2": [0, 2, 1], "batch_split_factor": 2}
    ),
    "npu_fused_matmul": lambda g: Call(
        (half(g, 6, 8), half(g, 8, 4)), {"x3": half(g, 6, 4), "fused_op_type": "add"}, differentiate=True
    ),
    "npu_fused_matmul-mul": lambda g: Call(
        (half(g, 2, 6, 8), half(g, 2, 8, 4)), {"bias": half(g, 4), "x3": half(g, 6, 4), "fused_op_type": "mul"}
    ),
    "npu_fused_matmul-relu": lambda g: Call(
        (single(g, 6, 8), single(g, 8, 4)), {"bias": single(g, 1, 4), "fused_op_type": "relu"}
    ),
    "npu_fused_matmul-gelu_erf": lambda g: Call((half(g, 6, 8), half(g, 8, 4)), {"fused_op_type": "gelu_erf"}),
    "npu_fused_matmul-gelu_tanh": lambda g: Call((half(g, 6, 8), half(g, 8, 4)), {"fused_op_type": "gelu_tanh"}),
    "npu_fused_matmul-float32": lambda g: Call((half(g, 6, 8), half(g, 8, 4)), {"fused_op_type": "16cast32"}),
    "npu_batch_gather_matmul": lambda g: Call(
        (half(g, 5, 9), half(g, 5, 16), half(g, 2, 3, 4, 16), torch.tensor([1, -1, 0, 0, 1], dtype=torch.int32)),
        {"weight_a": half(g, 2, 3, 16, 16), "layer_idx": 2, "scale": 0.5, "y_offset": 3, "y_slice_size": 4},
    ),
    "npu_batch_gather_matmul_": lambda g: Call(
        (half(g, 5, 4), half(g, 5, 16), half(g, 2, 1, 4, 16), torch.tensor([1, 0, 0, 1, -1], dtype=torch.int32)),
        {"scale": 2.0},
    ),
    "npu_bmm_v2_mat1_backward": lambda g: Call((half(g, 12, 5), half(g, 3, 4, 6), half(g, 6, 5), [3, 4, 6])),
    "npu_bmm_v2_mat2_backward": lambda g: Call((half(g, 3, 4, 5), half(g, 3, 4, 6), half(g, 6, 5), [6, 5])),
    "npu_ffn": lambda g: Call(
        (half(g, 2, 3, 8), half(g, 8, 12), half(g, 12, 8), "fastgelu"), {"inner_precise": 1}, differentiate=True
    ),
    "npu_ffn-experts": lambda g: Call(
        (half(g, 6, 8).bfloat16(), half(g, 3, 8, 12).bfloat16(), half(g, 3, 12, 8).bfloat16(), "silu"),
        {"expert_tokens": [2, 0, 4], "bias1": single(g, 3, 12), "bias2": single(g, 3, 8)},
    ),
    "npu_ffn-int8": lambda g: Call(
        (int8(g, 6, 16), int8(g, 2, 16, 12), int8(g, 2, 12, 16), "relu"),
        {
            "expert_tokens_index": [2, 6], "bias1": int32(g, 2, 12), "bias2": int32(g, 2, 16),
            "scale": positive(g, 2), "offset": single(g, 2) * 9, "deq_scale1": pack_scale(positive(g, 2, 12, at=1e-3)),
            "deq_scale2": pack_scale(positive(g, 2, 16, at=1e-3)), "output_dtype": torch.bfloat16,
        },
    ),
    "npu_ffn-weights_of_int8": lambda g: Call(
        (half(g, 6, 16), int8(g, 16, 12), int8(g, 12, 16), "relu"),
        {
            "antiquant_scale1": half(g, 12) / 100, "antiquant_scale2": half(g, 16) / 100,
            "antiquant_offset1": half(g, 12), "antiquant_offset2": half(g, 16),
        },
    ),
}  # fmt: skip
