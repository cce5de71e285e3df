"""Drawn operands of fused matrix products are legal: groups share out what they group, scales are numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.calls.arguments import constrain
from pytest_msprobe.engine.replay.ops.valid_rows import defined_rows
from pytest_msprobe.extensions.npu_operators.matmul.operands import scale_and_offset
from tests.support.cann.packed import pack_scale


def wild(*shape: int) -> Tensor:
    return torch.randint(-999, 999, shape, generator=torch.Generator().manual_seed(1))


def mended(api: str, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return constrain(api, args, kwargs, seed=0)


X, INT8 = torch.ones(10, 4), torch.ones(10, 4, dtype=torch.int8)


def test_groups_of_what_is_summed_over_share_out_the_columns() -> None:
    _, kwargs = mended("npu_grouped_matmul", [X.mT], [X], group_list=wild(4), group_type=2)
    assert kwargs["group_list"].tolist() == [3, 6, 8, 10]


def test_pairs_of_groups_name_each_once() -> None:
    _, kwargs = mended("npu_grouped_matmul", [X], [X], group_list=wild(4, 2), group_list_type=2)
    assert kwargs["group_list"].tolist() == [[0, 3], [1, 3], [2, 2], [3, 2]]


@pytest.mark.parametrize(
    ("api", "place", "before"),
    [
        ("npu_grouped_matmul_add", 3, (X, X, X)),
        ("npu_add_quant_gmm_", 4, (X, X.mT, X, X)),
        ("npu_grouped_matmul_swiglu_quant", 2, (INT8, X)),
        ("npu_grouped_matmul_swiglu_quant_v2", 4, (INT8, [X], [X], X)),
        ("npu_quant_grouped_matmul_dequant", 3, (X, X, X)),
    ],
)
def test_groups_at_their_position_are_ends_of_rows(api: str, place: int, before: tuple[Any, ...]) -> None:
    args, _ = mended(api, *before, wild(4))
    assert args[place].tolist() == [3, 6, 8, 10]


def test_rows_are_routed_back_to_tokens_that_there_are() -> None:
    (*_, sizes), kwargs = mended(
        "npu_grouped_matmul_finalize_routing", INT8, X, wild(4), row_index=wild(10), output_bs=3
    )
    assert sizes.tolist() == [3, 3, 2, 2]
    assert set(kwargs["row_index"].tolist()) <= {0, 1, 2}


def test_weights_are_chosen_among_those_that_there_are_or_none() -> None:
    args, _ = mended("npu_batch_gather_matmul", X, X, torch.ones(3, 1, 2, 4), wild(10))
    assert -1 <= int(args[3].min()) <= int(args[3].max()) < 3


def test_drawn_bits_of_packed_scales_are_scales_between_the_recorded_ones() -> None:
    ends = pack_scale(torch.tensor([0.001, 0.25]), torch.tensor([-40.0, 90.0]))
    low, high = sorted(ends.tolist())
    drawn = torch.randint(low, high, (500,), generator=torch.Generator().manual_seed(0))
    drawn[0], drawn[1] = low, high
    wrong, _ = scale_and_offset(drawn)
    assert not bool(((wrong >= 0.0009) & (wrong <= 0.25)).all())
    (_, _, scale), _ = mended("npu_quant_matmul", INT8, INT8.mT, drawn)
    factors, offsets = scale_and_offset(scale)
    assert bool(((factors >= 0.0009) & (factors <= 0.25)).all())
    assert offsets is not None
    assert {-40.0, 90.0} <= set(offsets.tolist())


def test_rows_behind_the_last_group_are_undefined_by_pairs_and_never_where_columns_are_grouped() -> None:
    pairs = torch.tensor([[0, 3], [2, 4], [1, 0]])
    assert defined_rows("npu_grouped_matmul", ([X],), {"group_list": pairs, "group_list_type": 2}) == (7, 10)
    assert defined_rows("npu_grouped_matmul", ([X],), {"group_list": torch.tensor([3, 7]), "group_type": 2}) is None
    assert defined_rows("npu_grouped_matmul_swiglu_quant", (X, X, torch.tensor([3, 7])), {}) == (7, 10)
