"""Causal convolutions against independent definitions, torch's own, and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.recurrent.causal_conv import (
    npu_fused_causal_conv1d,
    npu_fused_causal_conv1d_v2,
    npu_masked_causal_conv1d,
)

TAPS = torch.tensor([[100.0], [10.0], [1.0]])


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers).unsqueeze(1)


def test_the_cache_comes_before_a_sequence_and_is_moved_on() -> None:
    states = column(7, 8, 9).view(1, 3, 1)
    y = npu_fused_causal_conv1d(column(1, 2), TAPS, states, query_start_loc=torch.tensor([0, 2]))
    assert y.flatten().tolist() == [891, 912]
    assert states.flatten().tolist() == [9, 1, 2]


def test_rejected_tokens_of_the_cache_are_passed_over() -> None:
    states, accepted = column(7, 8, 9).view(1, 3, 1), torch.tensor([1])
    y = npu_fused_causal_conv1d(
        column(1), TAPS, states, query_start_loc=torch.tensor([0, 1]), num_accepted_tokens=accepted
    )
    assert y.flatten().tolist() == [781]
    assert states.flatten().tolist() == [7, 8, 1]


def test_a_sequence_in_the_padding_slot_has_no_definition_but_in_place() -> None:
    x, states = column(1, 2), torch.zeros(1, 2, 1)
    starts, slots = torch.tensor([0, 1, 2]), torch.tensor([0, -1])
    with pytest.raises(NotImplementedError, match="pad_slot_id"):
        npu_fused_causal_conv1d(x, TAPS, states, query_start_loc=starts, cache_indices=slots)
    npu_fused_causal_conv1d_v2(x, 3 * TAPS, states, query_start_loc=starts, cache_indices=slots)
    assert x.flatten().tolist() == [3, 2]


def test_arguments_without_a_meaning_are_refused_by_name() -> None:
    states = torch.zeros(1, 2, 1)
    with pytest.raises(NotImplementedError, match="activation"):
        npu_fused_causal_conv1d(column(1), TAPS, states, activation="silu")
    with pytest.raises(NotImplementedError, match="bias"):
        npu_fused_causal_conv1d_v2(column(1), TAPS, states, bias=torch.zeros(1))
    with pytest.raises(ValueError, match="query_start_loc"):
        npu_fused_causal_conv1d(column(1), TAPS, states)


def test_a_masked_convolution_is_torchs_with_groups() -> None:
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(6, 2, 4, generator=generator), torch.randn(3, 4, generator=generator)
    expected = torch.nn.functional.conv1d(x.permute(1, 2, 0), weight.T.unsqueeze(1), padding=2, groups=4)[..., :6]
    torch.testing.assert_close(npu_masked_causal_conv1d(x, weight), expected.permute(2, 0, 1))


def test_gradients_of_a_masked_convolution_are_those_of_finite_differences() -> None:
    leaves = [torch.rand(shape, dtype=torch.float64).requires_grad_() for shape in ((4, 2, 2), (3, 2))]
    mask = torch.tensor([[True, True, False, True], [True, False, True, True]])
    assert torch.autograd.gradcheck(lambda x, w: npu_masked_causal_conv1d(x, w, mask=mask), leaves)
