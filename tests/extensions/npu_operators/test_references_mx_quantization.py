"""Quantization with shared exponents against an independent definition, and against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.quantization.mx_quantization import (
    npu_anti_mx_quant,
    npu_dynamic_block_mx_quant,
    npu_dynamic_dual_level_mx_quant,
    npu_dynamic_mx_quant,
    npu_dynamic_mx_quant_with_dual_axis,
    npu_grouped_dynamic_mx_quant,
)

E4M3 = torch.float8_e4m3fn


# the examples of torch_npu's documentation
def test_the_documentation_s_examples_come_out() -> None:
    x = torch.tensor([[0, 8, 64, 512]], dtype=torch.bfloat16)
    y1, scale1, y2, scale2 = npu_dynamic_mx_quant_with_dual_axis(x, dst_type=E4M3)
    assert y1.float().tolist() == [[0, 4, 32, 256]]
    assert scale1.tolist() == [[[128, 0]]]
    assert y2.float().tolist() == [[0, 256, 256, 256]]
    assert scale2.tolist() == [[[0, 0], [122, 0], [125, 0], [128, 0]]]
    rows = torch.tensor([[0], [8], [64], [512]] * 2, dtype=torch.bfloat16)
    y, scale = npu_grouped_dynamic_mx_quant(rows, torch.tensor([4, 8], dtype=torch.int32), dst_type=24)
    assert y.float().flatten().tolist() == [0, 4, 32, 256] * 2
    assert scale.tolist() == [[[128, 0]], [[128, 0]]]


def in_a_block(largest: float, *others: float) -> Tensor:
    return torch.tensor([[largest, *others] + [0.0] * (31 - len(others))], dtype=torch.float64)


def nibbles(packed: Tensor) -> list[int]:
    return [half for byte in packed.flatten().tolist() for half in (byte & 15, byte >> 4)]


# With 4 as the largest the exponent is 0. The numbers are 0, 0.5, 1, 1.5, 2, 3, 4, 6, of codes 0 to 7; a sign is 8.
@pytest.mark.parametrize(
    ("mode", "codes"),
    [
        ("rint", [6, 0, 2, 4, 4, 6, 10, 8]),
        ("round", [6, 1, 2, 4, 5, 6, 10, 9]),
        ("floor", [6, 0, 1, 3, 4, 5, 10, 9]),
    ],
)
def test_the_middle_of_two_numbers_goes_where_the_mode_says(mode: str, codes: list[int]) -> None:
    x = in_a_block(4.0, 0.25, 0.75, 1.75, 2.5, 3.5, -1.0, -0.25)
    y, scale = npu_dynamic_mx_quant(x, round_mode=mode)
    assert nibbles(y)[:8] == codes
    assert scale.tolist() == [[[127, 0]]]


@pytest.mark.parametrize(
    ("largest", "algorithm", "dst_type", "options", "exponent"),
    [
        (4.0, 0, 296, {}, 0),
        (7.99, 0, 296, {}, 0),
        (8.0, 0, 296, {}, 1),
        (1.0, 0, 297, {}, 0),
        (448.0, 0, 292, {}, 0),
        (511.0, 0, 292, {}, 0),
        (448.0, 1, 292, {}, 0),
        (450.0, 1, 292, {}, 1),
        (0.25, 1, 292, {"max_low_bound": 448.0}, 0),
        (6.0, 2, 296, {}, 0),
        (6.03125, 2, 296, {}, 1),
        (7.0, 2, 296, {"dst_type_max": 7.0}, 0),
        (7.03125, 2, 296, {"dst_type_max": 7.0}, 1),
        (9.0, 2, 296, {"dst_type_max": 9.0}, 0),
        (9.0625, 2, 296, {"dst_type_max": 9.0}, 1),
    ],
)
def test_the_exponent_goes_up_where_the_algorithm_says(
    largest: float, algorithm: int, dst_type: int, options: dict[str, float], exponent: int
) -> None:
    x = in_a_block(largest)
    _, scale = npu_dynamic_mx_quant(x, dst_type=dst_type, scale_alg=algorithm, **options)
    assert scale.flatten().tolist() == [127 + exponent, 0]


def test_a_number_beyond_the_largest_is_the_largest() -> None:
    y, _ = npu_dynamic_mx_quant(in_a_block(7.99, -7.99))
    assert nibbles(y)[:2] == [7, 15]


@pytest.mark.parametrize("other", [torch.inf, torch.nan])
def test_a_block_with_what_is_not_finite_holds_zeros(other: float) -> None:
    y, scale = npu_dynamic_mx_quant(in_a_block(other, 2.0), dst_type=E4M3)
    assert y.float().abs().sum() == 0
    assert scale.flatten().tolist() == [255, 0]


def test_exponents_of_neighbouring_blocks_are_pairs_on_any_axis() -> None:
    x = torch.ones(96, 2, dtype=torch.float64) * torch.tensor([[1.0, 8.0]])
    x[32:64] *= 2
    _, scale = npu_dynamic_mx_quant(x, axis=0, dst_type=E4M3)
    assert scale.tolist() == [[[119, 120], [122, 123]], [[119, 0], [122, 0]]]


# Half a step of the format at 1; numbers up to 1.5, so that none is cut off.
@pytest.mark.parametrize(("dst_type", "error"), [(291, 1 / 8), (292, 1 / 16), (296, 1 / 4), (297, 1 / 8)])
def test_what_is_quantized_comes_back_but_for_its_rounding(dst_type: int, error: float) -> None:
    x = torch.rand(40, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 2 + 1
    y, scale = npu_dynamic_mx_quant(x, axis=0, dst_type=dst_type)
    back = npu_anti_mx_quant(y, scale, axis=0, src_type=dst_type, dst_type=torch.float64)
    assert error / 2 < float((back - x).abs().max()) <= error


def test_a_tile_has_one_exponent_in_both_lists() -> None:
    x = torch.ones(40, 64, dtype=torch.float64)
    x[33, 40] = 16.0
    y, by_row, by_column = npu_dynamic_block_mx_quant(x, dst_type=E4M3)
    assert by_row[:, 0].tolist() == [[119, 119]] * 32 + [[119, 123]] * 8
    assert by_column[0].tolist() == [[119, 119]] * 32 + [[119, 123]] * 32
    assert float(y.float()[33, 40]) == float(y.float()[0, 0]) == 256
    assert float(y.float()[39, 63]) == 16


def test_two_levels_share_out_the_magnitude() -> None:
    y, level0, level1 = npu_dynamic_dual_level_mx_quant(torch.tensor([[600.0, 100.0] + [0.0] * 62]))
    assert level0.tolist() == [[100.0]]
    assert nibbles(y)[:2] == [7, 2]
    assert level1.tolist() == [[[127, 0]]]


def test_groups_of_rows_begin_blocks_anew_and_leave_gaps_of_zeros() -> None:
    x = torch.ones(70, 1, dtype=torch.float64)
    x[30:] = 4.0
    _, scale = npu_grouped_dynamic_mx_quant(x, torch.tensor([30, 70]), dst_type=24)
    assert scale.squeeze(1).tolist() == [[119, 0], [121, 121], [0, 0]]


@pytest.mark.parametrize(
    ("dst_type", "algorithm", "named"),
    [(torch.int8, 0, "dst_type torch.int8"), (296, 1, "scale_alg_1"), (E4M3, 2, "scale_alg_2")],
)
def test_what_has_no_shared_exponents_is_named(dst_type: object, algorithm: int, named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"npu_dynamic_mx_quant has no golden definition with {named}"):
        npu_dynamic_mx_quant(torch.ones(2, 32), dst_type=dst_type, scale_alg=algorithm)
