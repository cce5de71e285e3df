"""Older single layers against independent definitions, by hand, and by finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.layers.convolution import npu_deformable_conv2d
from pytest_msprobe.extensions.npu_operators.layers.drawn_results import npu_dropout_backward, npu_dropout_do_mask
from pytest_msprobe.extensions.npu_operators.layers.normalization import npu_normalize_batch
from pytest_msprobe.extensions.npu_operators.layers.training import npu_bert_apply_adam
from pytest_msprobe.extensions.npu_operators.quantization.quantization import npu_ifmr


def test_the_documented_bits_keep_the_documented_elements() -> None:
    mask = torch.tensor([98, 255, 188, 186, 120, 157, 175, 159, 77, 223, 127, 79, 247, 151, 253, 255]).to(torch.uint8)
    dropped, same = npu_dropout_do_mask(torch.tensor([1.0, 2.0, 3.0, 4.0]), mask, 0.3)
    torch.testing.assert_close(dropped, torch.tensor([0.0, 2.8571, 0.0, 0.0]), atol=1e-4, rtol=0)
    assert same is mask
    assert not npu_dropout_backward(torch.ones(4), mask, 1.0).any()


def test_a_step_of_berts_adam_by_hand() -> None:
    var, m, v = torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([0.0])
    results = npu_bert_apply_adam(0.1, 0.5, 0.75, 0.0, torch.tensor([2.0]), 1.0, 4.0, 0.5, var=var, m=m, v=v)
    # the gradient is clipped to 1/2: m = 1/4, v = 1/16, so that the update is 1
    assert [float(each) for each in (var, m, v)] == pytest.approx([1 - 0.1 * 1.5, 0.25, 0.0625])
    assert all(found is given for found, given in zip(results, (var, m, v), strict=True))


def test_berts_adam_refuses_what_documents_contradict_each_other_on() -> None:
    state = (torch.zeros(1), torch.zeros(1), torch.zeros(1))
    with pytest.raises(NotImplementedError, match="max_grad_norm 2"):
        npu_bert_apply_adam(0.1, 0.9, 0.9, 1e-6, torch.zeros(1), 2.0, 4.0, 0.0, out=state)
    with pytest.raises(ValueError, match="out="):
        npu_bert_apply_adam(0.1, 0.9, 0.9, 1e-6, torch.zeros(1), -1.0, 4.0, 0.0)


def test_calibration_finds_the_scale_that_fits() -> None:
    data = torch.arange(-127, 128, dtype=torch.float64) / 64
    counts = torch.histc(data, 128).cumsum(0).int()
    scale, offset = npu_ifmr(data, data.min(), data.max(), counts, 1.0, 1.0, 0.98, 1.03, 0.01, False)
    assert float(scale) == pytest.approx(1 / 64, rel=0.011)
    assert float(offset) == 0


def test_sequences_are_normalized_by_the_steps_they_have() -> None:
    x = torch.tensor([[[1.0, 3.0, 100.0], [0.0, 2.0, 4.0]]], dtype=torch.float64)
    found = npu_normalize_batch(x, torch.tensor([2]))
    std = 2**0.5 + 1e-5
    torch.testing.assert_close(found, (x - torch.tensor([[2.0], [1.0]])) / std)
    with pytest.raises(ValueError, match="normalize_type"):
        npu_normalize_batch(x, torch.tensor([2]), 2)


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    generator = torch.Generator().manual_seed(6)
    x, weight = torch.randn(1, 2, 5, 5, generator=generator), torch.randn(3, 2, 3, 3, generator=generator)
    offset = torch.zeros(1, 27, 5, 5)
    offset[:, 18:] = 1
    found, samples = npu_deformable_conv2d(x, weight, offset, None, [3, 3], [1, 1, 1, 1], [1, 1, 1, 1])
    torch.testing.assert_close(found, torch.nn.functional.conv2d(x, weight, padding=1), atol=1e-5, rtol=1e-5)
    assert samples.shape == (1, 2, 15, 15)


def test_the_first_offsets_move_along_the_width() -> None:
    x = torch.arange(9.0).view(1, 1, 3, 3)
    offset = torch.zeros(1, 3, 3, 3)
    offset[:, 0], offset[:, 2] = 1, 1
    found, _ = npu_deformable_conv2d(x, torch.ones(1, 1, 1, 1), offset, None, [1, 1], [1, 1, 1, 1], [0, 0, 0, 0])
    assert found.tolist() == [[[[1, 2, 0], [4, 5, 0], [7, 8, 0]]]]


def test_gradients_of_a_deformable_convolution_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(8)
    shapes = ((1, 2, 4, 4), (2, 2, 2, 2), (1, 12, 3, 3))
    leaves = [torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]

    def convolve(x: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
        return npu_deformable_conv2d(x, weight, offset, None, [2, 2], [1, 1, 1, 1], [0, 0, 0, 0])[0]

    assert torch.autograd.gradcheck(convolve, leaves, fast_mode=True)


def test_the_first_version_of_deformable_convolutions_is_refused_by_name() -> None:
    x = torch.zeros(1, 1, 1, 1)
    with pytest.raises(NotImplementedError, match="modulated"):
        npu_deformable_conv2d(x, x, torch.zeros(1, 3, 1, 1), None, [1, 1], [1] * 4, [0] * 4, modulated=False)
