"""Which numbers of few bits, and which exponents that blocks share, count as golden's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import accept_implementation_defined
from pytest_msprobe.extensions.npu_operators.quantization.mx_quantization import (
    npu_dynamic_mx_quant,
    npu_swiglu_mx_quant_with_dual_axis,
)
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    E1M2,
    E2M1,
    E4M3,
    E5M2,
    HIFLOAT8,
    INT4,
    NumberFormat,
    numbers_in,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import ranks


def accepted(operation: str, target: list[Any], golden: list[Any], **kwargs: Any) -> list[bool]:
    """Return for each result whether golden's was put in its place."""
    found, right = {"output": list(target)}, {"output": golden}
    accept_implementation_defined(operation, ((), kwargs), found, right)
    return [one is other for one, other in zip(found["output"], golden, strict=True)]


@pytest.mark.parametrize("of", [E2M1, E1M2, INT4, E4M3, E5M2, HIFLOAT8])
def test_ranks_count_the_numbers_of_a_format_in_their_order(of: NumberFormat) -> None:
    stored = torch.arange(256, dtype=torch.uint8).reshape(-1, 4).view(of.stored)
    numbers, found = numbers_in(stored, of).flatten(), ranks(stored, of).flatten()
    pairs = zip(numbers.tolist(), found.tolist(), strict=True)
    by_number = {number: rank for number, rank in pairs if math.isfinite(number)}
    in_order = [by_number[number] for number in sorted(by_number)]
    assert in_order == list(range(in_order[0], in_order[-1] + 1))
    assert by_number[0.0] == 0


@pytest.mark.parametrize("of", [E4M3, E5M2])
def test_what_is_no_number_is_next_to_none(of: NumberFormat) -> None:
    stored = torch.tensor([of.largest, torch.nan, -of.largest]).to(of.stored)
    largest, nothing, lowest = ranks(stored, of).tolist()
    assert nothing - largest > 1
    assert nothing - lowest > 1


def packed(*numbers: int) -> Tensor:
    return store(torch.tensor(numbers, dtype=torch.float64), INT4)


# 15 of 16 numbers are golden's, so one may be a neighbour
@pytest.mark.parametrize(
    ("found", "right", "is_accepted"),
    [
        ((1, *[0] * 15), (2, *[0] * 15), True),
        ((1, 1, *[0] * 14), (2, 2, *[0] * 14), True),
        ((1, 1, 1, *[0] * 13), (2, 2, 2, *[0] * 13), False),
        ((1, *[0] * 15), (3, *[0] * 15), False),
        ((0, 1, *[0] * 14), (0, 2, *[0] * 14), True),
        ((-8, *[0] * 15), (7, *[0] * 15), False),
    ],
)
def test_each_of_eight_numbers_in_an_element_is_judged_by_itself(
    found: tuple[int, ...], right: tuple[int, ...], is_accepted: bool
) -> None:
    result = accepted("npu_group_quant", [packed(*found)], [packed(*right)], dst_dtype=torch.quint4x2)
    assert result == [is_accepted]


def test_whole_numbers_of_32_bits_are_no_packed_ones() -> None:
    found, right = (torch.tensor([number] * 16 + [0] * 240, dtype=torch.int32) for number in (16, 0))
    assert accepted("npu_quantize", [found], [right], dtype=torch.int32) == [False]
    assert accepted("npu_quantize", [right + 15], [right + 16], dtype=torch.int32) == [False]
    right[0] = 15
    found = right.clone()
    found[0] = 16
    assert accepted("npu_quantize", [found], [right], dtype=torch.int32) == [True]


def blocks(largest: float, *, seed: int = 0, rows: int = 16) -> Tensor:
    """Return rows of two blocks of numbers; in the first one the largest magnitude is given."""
    x = torch.rand(rows, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5
    x[0, 0] = largest
    return x


def mx(x: Tensor, dst_type: int, algorithm: int) -> list[Any]:
    """Return numbers, exponents and nothing, as an operator that normalizes first returns them."""
    return [*npu_dynamic_mx_quant(x, dst_type=dst_type, scale_alg=algorithm), None]


# 2 * 2^k is where the specification's exponent goes up, and the format's largest * 2^k where the other one does.
@pytest.mark.parametrize(
    ("at", "dst_type", "algorithm"), [(2.0, 296, 0), (2.0, 292, 0), (2.0, 291, 0), (1.75, 292, 1), (1.75, 291, 1)]
)
def test_an_exponent_goes_either_way_where_the_largest_magnitude_does(at: float, dst_type: int, algorithm: int) -> None:
    below, above = (mx(blocks(at * (1 + off)), dst_type, algorithm) for off in (-1e-4, 1e-4))
    options = {"dst_type": dst_type, "scale_alg": algorithm}
    assert not torch.equal(below[1], above[1])
    for target, golden in ((below, above), (above, below)):
        assert accepted("npu_rms_norm_dynamic_mx_quant", target, golden, **options) == [True, True, True]


@pytest.mark.parametrize(("at", "dst_type", "algorithm"), [(1.5, 292, 0), (2.6, 292, 0), (1.6, 292, 1)])
def test_another_exponent_of_another_magnitude_is_wrong(at: float, dst_type: int, algorithm: int) -> None:
    golden = mx(blocks(at), dst_type, algorithm)
    for step in (-1, 1):
        numbers = golden[0].float()
        numbers[0, :32] = (numbers[0, :32] * 2.0**-step).clamp(-448, 448)
        target = [numbers.to(golden[0].dtype), golden[1].clone(), None]
        target[1][0, 0, 0] += step
        options = {"dst_type": dst_type, "scale_alg": algorithm}
        assert accepted("npu_rms_norm_dynamic_mx_quant", target, golden, **options)[:2] == [False, False]


def test_an_exponent_without_its_numbers_is_wrong() -> None:
    below, above = (mx(blocks(2.0 * (1 + off)), 292, 0) for off in (-1e-4, 1e-4))
    mixed = [below[0].clone(), above[1], None]
    assert accepted("npu_rms_norm_dynamic_mx_quant", mixed, below, dst_type=292)[:2] == [False, False]


def test_more_than_a_few_other_exponents_are_wrong() -> None:
    x = blocks(2.0)
    x[:, ::32] = 2.0
    below, above = (mx(x * (1 + off), 292, 0) for off in (-1e-4, 1e-4))
    assert accepted("npu_rms_norm_dynamic_mx_quant", below, above, dst_type=292)[:2] == [False, False]


def test_an_exponent_of_an_input_s_own_magnitude_is_not_open() -> None:
    below, above = (mx(blocks(2.0 * (1 + off)), 292, 0)[:2] for off in (-1e-4, 1e-4))
    assert accepted("npu_dynamic_mx_quant", below, above, dst_type=292) == [False, False]


def test_an_exponent_between_blocks_is_golden_s() -> None:
    golden = mx(blocks(1.5)[:, :32], 292, 0)
    target = [golden[0].clone(), golden[1].clone(), None]
    target[1][0, 0, 1] = 1
    assert accepted("npu_rms_norm_dynamic_mx_quant", target, golden, dst_type=292)[:2] == [False, False]


def test_blocks_of_groups_of_rows_are_found_by_the_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(70, 64, dtype=torch.float64, generator=generator)
    groups = torch.tensor([33, 70])
    golden = list(npu_swiglu_mx_quant_with_dual_axis(x, group_index=groups))
    near = list(npu_swiglu_mx_quant_with_dual_axis(x * (1 + 1e-4), group_index=groups))
    operation = "npu_swiglu_mx_quant_with_dual_axis"
    assert accepted(operation, near, golden, group_index=groups) == [True] * 4
    far = list(npu_swiglu_mx_quant_with_dual_axis(x * 1.2, group_index=groups))
    assert accepted(operation, far, golden, group_index=groups) == [False] * 4


def test_what_is_written_to_an_argument_may_be_rounded_to_either_side() -> None:
    found, right = (torch.tensor([number] + [0] * 9, dtype=torch.int8) for number in (3, 4))
    target, golden = ({"output": [each], "changed": {"self": each}} for each in (found, right))
    accept_implementation_defined("npu_quant_scatter_", ((), {}), target, golden)
    assert target["output"][0] is right
    assert target["changed"]["self"] is right
