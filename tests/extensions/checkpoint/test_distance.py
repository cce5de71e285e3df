"""How far two tensors are apart where float64 reaches its limits, and what has no distance."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import parameter
from pytest_msprobe.extensions.checkpoint.items import judge_parameter
from pytest_msprobe.extensions.checkpoint.value_differences import distance


def outcome(target: torch.Tensor, golden: torch.Tensor, limit: float = 0.0) -> str:
    return judge_parameter("x", parameter(target), parameter(golden), limit).verdict.outcome


@pytest.mark.parametrize(
    ("target", "golden", "dtype"),
    [
        ([2**53 + 1], [2**53], torch.int64),
        ([2**63 + 1], [2**63], torch.uint64),
        ([2e200], [1e200], torch.float64),
        ([2e-200], [1e-200], torch.float64),
        ([1e200, 2.0], [1e200, 1.0], torch.float64),
        ([math.nan], [0.0], torch.float32),
        ([1.0], [math.inf], torch.bfloat16),
        ([-math.inf], [math.inf], torch.float16),
    ],
)
def test_values_that_differ_fail_however_large_or_small(
    target: list[float], golden: list[float], dtype: torch.dtype
) -> None:
    assert outcome(torch.tensor(target, dtype=dtype), torch.tensor(golden, dtype=dtype)) == "fail"


def test_the_share_of_a_norm_is_reported_where_its_square_overflows_or_vanishes() -> None:
    for scale in (1e200, 1e-200):
        golden = torch.full((4,), scale, dtype=torch.float64)
        found = distance(golden * 1.5, golden)
        assert (found.relative, found.l2) == (pytest.approx(0.5), pytest.approx(scale))
        assert outcome(golden * 1.5, golden, limit=0.6) == "pass"


def test_zeros_of_either_sign_and_nan_of_any_bits_are_equal_values() -> None:
    found = judge_parameter("x", parameter(torch.tensor([-0.0])), parameter(torch.tensor([0.0])), 0.0).verdict
    assert (found.outcome, found.reason) == ("pass", "equal values")
    assert outcome(torch.tensor([math.nan]), -torch.tensor([math.nan])) == "pass"


def test_parameters_without_elements_are_equal_in_any_dtype() -> None:
    assert outcome(torch.zeros(0), torch.zeros(0).half()) == "warn"


@pytest.mark.parametrize("odd", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")], ids=["sparse", "meta"])
def test_what_is_no_block_of_elements_is_refused_by_name(odd: torch.Tensor) -> None:
    with pytest.raises(
        CheckpointError, match="x cannot be compared: it is sparse, quantized, nested or without elements"
    ):
        outcome(odd, odd)


def packed(codes: list[int]) -> torch.Tensor:
    return torch.tensor(codes, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def test_elements_of_four_bits_are_measured_two_a_byte() -> None:
    # The low half of a byte comes first: 6 and 1 against 6 and -0.5.
    found = distance(packed([0x27]), packed([0x97]))
    assert (found.max_abs, found.max_relative) == (1.5, 3.0)
    assert found.cosine == pytest.approx((36 - 0.5) / math.sqrt(37 * 36.25))
    assert outcome(packed([0x27]), packed([0x97])) == "fail"
    assert outcome(packed([0x27]), packed([0x27])) == "pass"


@pytest.mark.parametrize("other", [torch.ones(2), torch.ones(2, dtype=torch.uint8)])
def test_elements_of_four_bits_are_not_those_of_another_dtype(other: torch.Tensor) -> None:
    with pytest.raises(CheckpointError, match=r"x differs, and elements of float4_e2m1fn_x2 and \w+ cannot be"):
        outcome(packed([0x27, 0x11]), other)


def test_elements_that_torch_has_a_name_for_and_no_numbers_are_equal_or_refused() -> None:
    ones, zeros = (torch.full((2,), byte, dtype=torch.uint8).view(torch.uint4) for byte in (1, 0))
    assert outcome(ones, ones) == "pass"
    with pytest.raises(CheckpointError, match="elements of uint4 cannot"):
        outcome(ones, zeros)
