"""Calls of products of groups of rows, with small shapes of the documentation's kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.examples.quantized_products import (
    E8M0,
    float8,
    half,
    int4,
    int8,
    int32,
    positive,
    powers,
    single,
)
from tests.support.cann.packed import pack_scale

# The second group is empty.
ENDS, SIZES = [2, 2, 6], [2, 0, 4]


def ends(*numbers: int) -> Tensor:
    """Return a list of groups."""
    return torch.tensor(numbers or ENDS)


def grouped(x: list[Tensor], weight: list[Tensor], **options: Any) -> Call:
    """Return a call with one result, of groups of rows."""
    return Call((x, weight), {"group_list": ends(), "split_item": 2, "group_type": 0, **options})


def separate(g: Generator) -> Call:
    """Return a call with several of each operand."""
    weights = [half(g, 4, 5), half(g, 6, 3)]
    return Call(
        ([half(g, 2, 4), half(g, 3, 6)], weights), {"bias": [half(g, 5), half(g, 3)], "group_type": -1},
        differentiate=True,
    )  # fmt: skip


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_grouped_matmul": separate,
    "npu_grouped_matmul-rows": lambda g: grouped(
        [half(g, 6, 8)], [half(g, 3, 8, 4)], bias=[half(g, 3, 4)], tuning_config=[2]
    ),
    "npu_grouped_matmul-sizes": lambda g: grouped(
        [single(g, 6, 8)], [single(g, 3, 8, 4)], group_list=torch.tensor(SIZES), group_list_type=1
    ),
    "npu_grouped_matmul-list": lambda g: Call(
        ([half(g, 6, 8)], [half(g, 8, 4), half(g, 8, 4), half(g, 8, 4)]), {"group_list": ENDS, "split_item": 2}
    ),
    "npu_grouped_matmul-inner": lambda g: Call(
        ([half(g, 6, 5).mT], [half(g, 6, 4)]), {"group_list": ends(1, 4, 6), "split_item": 3, "group_type": 2}
    ),
    "npu_grouped_matmul-weight_of_int8": lambda g: grouped(
        [half(g, 6, 8)], [int8(g, 3, 8, 4)], antiquant_scale=[half(g, 3, 4) / 100], antiquant_offset=[half(g, 3, 4)]
    ),
    "npu_grouped_matmul-weight_of_int4": lambda g: grouped(
        [half(g, 6, 16).bfloat16()],
        [int4(g, 3, 16, 8)],
        antiquant_scale=[half(g, 3, 4, 8).bfloat16()],
        antiquant_offset=[half(g, 3, 4, 8).bfloat16()],
    ),
    "npu_grouped_matmul-int8": lambda g: grouped(
        [int8(g, 6, 16)],
        [int8(g, 3, 16, 4)],
        bias=[int32(g, 3, 4)],
        scale=[pack_scale(positive(g, 3, 4, at=1e-3), single(g, 3, 4) * 9)],
    ),
    "npu_grouped_matmul-tokens": lambda g: grouped(
        [int8(g, 6, 16)],
        [int8(g, 3, 16, 4)],
        bias=[single(g, 3, 4)],
        scale=[positive(g, 3, 4, at=1e-3)],
        per_token_scale=[positive(g, 6)],
        act_type=2,
        output_dtype=torch.float16,
    ),
    "npu_grouped_matmul-pairs": lambda g: grouped(
        [int8(g, 6, 16)],
        [int8(g, 3, 16, 4)],
        scale=[positive(g, 3, 4, at=1e-3).bfloat16()],
        per_token_scale=[positive(g, 6)],
        group_list=torch.tensor([[0, 2], [2, 4], [1, 0]]),
        group_list_type=2,
        act_type=5,
        output_dtype=torch.bfloat16,
    ),
    "npu_grouped_matmul-int32": lambda g: grouped([int8(g, 6, 16)], [int8(g, 3, 16, 4)], output_dtype=torch.int32),
    "npu_grouped_matmul-int4": lambda g: grouped(
        [int4(g, 6, 16)],
        [int4(g, 3, 16, 8)],
        scale=[positive(g, 3, 8, at=1e-2)],
        per_token_scale=[positive(g, 6)],
        output_dtype=torch.float16,
    ),
    "npu_grouped_matmul-halves": lambda g: grouped(
        [int8(g, 6, 16)],
        [int4(g, 3, 16, 8)],
        bias=[single(g, 3, 8)],
        scale=[pack_scale(positive(g, 3, 8, at=1e-2))],
        per_token_scale=[positive(g, 6)],
        output_dtype=torch.bfloat16,
    ),
    "npu_grouped_matmul-mx": lambda g: grouped(
        [float8(g, 6, 64)],
        [float8(g, 3, 64, 4)],
        scale=[powers(g, 3, 1, 4, 2)],
        per_token_scale=[powers(g, 6, 1, 2)],
        scale_dtype=E8M0,
        per_token_scale_dtype=E8M0,
        output_dtype=torch.bfloat16,
    ),
    "npu_grouped_matmul_add": lambda g: Call(
        (single(g, 3, 5, 4), half(g, 8, 5).bfloat16(), half(g, 8, 4).bfloat16(), ends(3, 3, 8)), differentiate=True
    ),
    "npu_grouped_matmul_add_": lambda g: Call(
        (single(g, 3, 5, 4), half(g, 8, 5), half(g, 8, 4), torch.tensor([3, 0, 4])), {"group_list_type": 1}
    ),
    "npu_add_quant_gmm": lambda g: Call(
        (single(g, 2, 4, 6), float8(g, 16, 4).mT, float8(g, 16, 6), positive(g, 2, 6), ends(7, 16)),
        {"x1_scale": positive(g, 2)},
    ),
    "npu_add_quant_gmm_": lambda g: Call(
        (single(g, 2, 4, 6), float8(g, 128, 4).mT, float8(g, 128, 6), powers(g, 4, 6, 2), ends(48, 128)),
        {"x1_scale": powers(g, 4, 4, 2).transpose(0, 1), "x1_scale_dtype": E8M0, "x2_scale_dtype": E8M0},
    ),
    "npu_grouped_matmul_finalize_routing": lambda g: Call(
        (int8(g, 6, 16), int8(g, 3, 16, 4), torch.tensor(SIZES)),
        {
            "scale": positive(g, 3, 4, at=1e-2),
            "pertoken_scale": positive(g, 6),
            "shared_input": half(g, 1, 4).bfloat16(),
            "logit": single(g, 6),
            "row_index": torch.tensor([1, 0, 2, 1, 0, 2]),
            "shared_input_offset": 1,
            "shared_input_weight": 0.5,
            "output_bs": 3,
        },
    ),
    "npu_grouped_matmul_finalize_routing-halves": lambda g: Call(
        (int8(g, 6, 16), int4(g, 3, 16, 8), ends(2, 2, 5)),
        {
            "scale": pack_scale(positive(g, 3, 1, 8, at=1e-2)),
            "bias": single(g, 3, 8),
            "pertoken_scale": positive(g, 6),
            "logit": single(g, 6),
            "row_index": torch.tensor([1, 0, 2, 1, 0, 2], dtype=torch.int32),
            "output_bs": 3,
            "group_list_type": 0,
        },
    ),
    "npu_grouped_matmul_swiglu_quant": lambda g: Call(
        (int8(g, 6, 16), int8(g, 3, 16, 8), ends(2, 2, 5), positive(g, 3, 8, at=1e-2), positive(g, 6, at=0.1))
    ),
    "npu_grouped_matmul_swiglu_quant_v2": lambda g: Call(
        (int8(g, 6, 16), [int8(g, 3, 16, 8)], [positive(g, 3, 8, at=1e-3)], positive(g, 6), torch.tensor(SIZES)),
        {"group_list_type": 1},
    ),
    "npu_grouped_matmul_swiglu_quant_v2-int4": lambda g: Call(
        (int4(g, 6, 16), [int4(g, 3, 16, 8)], [positive(g, 3, 8, at=1e-2)], positive(g, 6), ends()),
        {"smooth_scale": positive(g, 3, 4)},
    ),
    "npu_grouped_matmul_swiglu_quant_v2-halves": lambda g: Call(
        (int8(g, 6, 16), [int4(g, 3, 16, 8)], [pack_scale(positive(g, 3, 2, 8, at=1e-2))], positive(g, 6), ends()),
        {"weight_assist_matrix": [single(g, 3, 8)], "dequant_mode": 1},
    ),
    "npu_quant_grouped_matmul_dequant": lambda g: Call(
        (half(g, 6, 16), int8(g, 3, 16, 16), positive(g, 3, 16, at=1e-2), ends()),
        {"smooth_scale": positive(g, 16).half()},
    ),
    "npu_quant_grouped_matmul_dequant-pertensor": lambda g: Call(
        (half(g, 6, 16), int8(g, 3, 16, 16), pack_scale(positive(g, 3, 16, at=1e-3)), ends()),
        {"x_scale": positive(g, 1, at=0.02).half(), "quant_mode": "pertensor"},
    ),
}
