"""Calls of all ranks of a group of operators that compute and communicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator

from tests.support.cann.example_call import Call
from tests.support.cann.examples.quantized_products import half, int8, positive, single
from tests.support.cann.packed import pack_scale

#: The name that HCCL gives a group.
GROUP = "127.0.0.1%lo_50001_0_1700000000"


def bf16(g: Generator, *shape: int) -> torch.Tensor:
    """Return normal bfloat16."""
    return single(g, *shape).bfloat16()


def two(
    make: Callable[[int], tuple[Any, ...]], options: Callable[[int], dict[str, Any]] = lambda rank: {}
) -> list[Call]:
    """Return the calls of two ranks, each with the name of their group and its size behind its operands."""
    return [Call((*make(rank), GROUP, 2), options(rank)) for rank in range(2)]


def exchanged(g: Generator, *, back: bool, **options: Any) -> list[Call]:
    """Return calls of two ranks with two experts each; rank 0 gives 5 rows, rank 1 gives 4."""
    send, receive = [[1, 2, 0, 2], [2, 0, 1, 1]], [[1, 2, 2, 0], [0, 2, 1, 1]]
    sent, taken = (receive, send) if back else (send, receive)
    return [
        Call(
            (half(g, sum(sent[rank]), 8), half(g, 2, 8, 6), GROUP, 2),
            {
                "send_counts": sent[rank],
                "recv_counts": taken[rank],
                **{name: make(g) for name, make in options.items()},
            },
        )
        for rank in range(2)
    ]


RANKS: dict[str, Callable[[Generator], list[Call]]] = {
    "npu_mm_all_reduce_base": lambda g: [
        Call((half(g, 4, 16), half(g, 16, 6), GROUP), {"bias": half(g, 6), "x3": half(g, 4, 6)}) for _ in range(2)
    ],
    "npu_mm_all_reduce_base-int8": lambda g: [
        Call(
            (int8(g, 4, 16), int8(g, 16, 6), GROUP),
            {"dequant_scale": positive(g, 6, at=1e-2).bfloat16(), "pertoken_scale": positive(g, 4)},
        )
        for _ in range(2)
    ],
    "npu_mm_all_reduce_base-weight_of_int8": lambda g: [
        Call(
            (half(g, 4, 16), int8(g, 16, 6), GROUP),
            {"antiquant_scale": half(g, 1, 6) / 100, "antiquant_offset": half(g, 1, 6)},
        )
        for _ in range(2)
    ],
    "npu_all_gather_base_mm": lambda g: two(lambda rank: (half(g, 3, 16), half(g, 16, 6))),
    "npu_all_gather_base_mm-int8": lambda g: two(
        lambda rank: (int8(g, 3, 16), int8(g, 16, 6)),
        lambda rank: {
            "x1_scale": positive(g, 3, 1), "x2_scale": positive(g, 1, 6, at=1e-2), "output_dtype": torch.float16,
            "gather_output": False,
        },
    ),
    "npu_all_gather_quant_mm": lambda g: two(
        lambda rank: (int8(g, 3, 16), int8(g, 16, 6)),
        lambda rank: {"x1_scale": positive(g, 3, 1), "x2_scale": positive(g, 1, 6, at=1e-2), "y_dtype": torch.float16},
    ),
    "npu_mm_reduce_scatter_base": lambda g: two(lambda rank: (bf16(g, 4, 16), bf16(g, 16, 6))),
    "npu_quant_mm_reduce_scatter": lambda g: two(
        lambda rank: (int8(g, 4, 16), int8(g, 16, 6)),
        lambda rank: {
            "x1_scale": positive(g, 4, 1), "x2_scale": pack_scale(positive(g, 1, 6, at=1e-2)), "y_dtype": torch.float16,
        },
    ),
    "npu_all_to_all_matmul": lambda g: two(
        lambda rank: (half(g, 4, 8), half(g, 16, 6)), lambda rank: {"bias": half(g, 6)}
    ),
    "npu_matmul_all_to_all": lambda g: two(
        lambda rank: (bf16(g, 4, 8), bf16(g, 8, 6)), lambda rank: {"bias": single(g, 6)}
    ),
    "npu_quant_matmul_all_to_all": lambda g: two(
        lambda rank: (int8(g, 4, 8), int8(g, 8, 6)),
        lambda rank: {
            "bias": single(g, 6), "x1_scale": positive(g, 4), "x2_scale": positive(g, 6, at=1e-2), "x1_quant_mode": 3,
            "x2_quant_mode": 2,
        },
    ),
    "npu_alltoallv_gmm": lambda g: exchanged(
        g, back=False, mm_x=lambda g: half(g, 3, 8), mm_weight=lambda g: half(g, 8, 4), permute_out_flag=lambda g: True
    ),
    "npu_gmm_alltoallv": lambda g: exchanged(g, back=True),
    "npu_moe_distribute_dispatch": lambda g: [
        Call((bf16(g, 5, 8), torch.rand(5, 4, generator=g).argsort(-1)[:, :2].int(), GROUP, 2, rank, 4))
        for rank in range(2)
    ],
}  # fmt: skip
