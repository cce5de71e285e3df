"""Quantization with scales in float, and parameters of quantized products, against independent definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytest_msprobe.extensions.npu_operators.matmul.operands import scale_and_offset
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import (
    npu_dynamic_block_quant,
    npu_grouped_dynamic_block_quant,
    npu_kronecker_quant,
    npu_quant_max,
    npu_rotate_quant,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantization import (
    npu_dynamic_quant,
    npu_moe_init_routing_quant,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_layers import (
    npu_convert_weight_to_int4pack,
    npu_dequant_bias,
    npu_quant_conv2d,
    npu_quant_scatter,
    npu_quant_scatter_,
    npu_trans_quant_param,
    npu_weight_quant_preprocess,
)
from tests.support.cann.examples import block_quantization as examples
from tests.support.cann.examples import quantized_parameters as examples_of_parameters
from tests.support.cann.operators import block_quantization, quantized_parameters

FAMILIES = ((examples.EXAMPLES, block_quantization), (examples_of_parameters.EXAMPLES, quantized_parameters))


def test_a_block_is_divided_by_its_largest_magnitude() -> None:
    x = torch.tensor([[127.0, -63.4] + [0.0] * 126 + [0.0, 0.0]])
    y, scale = npu_dynamic_block_quant(x)
    assert y[0, :2].tolist() == [127, -63]
    assert scale.tolist() == [[1.0, 0.0]]
    assert y[0, 2:].abs().sum() == 0


def test_a_scale_is_at_most_what_the_smallest_one_says() -> None:
    _, scale = npu_dynamic_block_quant(torch.tensor([[254.0]]), min_scale=2.0)
    assert scale.tolist() == [[0.5]]


def test_a_group_without_rows_has_no_scale() -> None:
    x = torch.tensor([[57344.0], [28672.0]])
    y, scale = npu_grouped_dynamic_block_quant(x, torch.tensor([0, 2]), row_block_size=128)
    assert y.float().flatten().tolist() == [57344, 28672]
    assert scale.tolist() == [[0.0], [1.0]]


def test_the_largest_magnitude_of_each_group_comes_along() -> None:
    x = torch.tensor([[1.0, -5.0], [2.0, 3.0], [0.5, 0.25]])
    y, amax = npu_quant_max(x, torch.tensor([2.0, 4.0]), group_list=torch.tensor([1, 3]), dst_dtype=torch.float8_e4m3fn)
    assert y.float().tolist() == [[2, -10], [8, 12], [2, 1]]
    assert amax.tolist() == [5, 3]


def test_a_rotation_multiplies_each_part_of_a_row_from_the_right() -> None:
    swap = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    y, scale = npu_rotate_quant(torch.tensor([[1.0, 2.0, 3.0, 127.0]]), swap)
    assert y.tolist() == [[2, 2, 127, 6]]
    assert scale.tolist() == [1.0]


def test_a_product_from_both_sides_is_packed_to_4_bits() -> None:
    x = torch.ones(1, 2, 8)
    y, scale = npu_kronecker_quant(x, torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.eye(8) * 3.5, 0.5)
    assert scale.tolist() == [0.5]
    assert y.tolist() == [[[0x77777777], [0x77777777]]]


def test_all_channels_or_one_each_share_a_scale() -> None:
    x = torch.tensor([[1.0, -2.0], [127.0, 0.5]])
    assert npu_dynamic_quant(x, quant_mode="pertensor")[1].tolist() == [1.0]
    y, scale = npu_dynamic_quant(x, quant_mode="perchannel", smooth_scales=torch.tensor([1.0, 2.0]))
    # the rows 1, -2 and 254, 1 by columns
    assert scale.tolist() == pytest.approx([2.0, 2 / 127], rel=1e-6)
    assert y.tolist() == [[0, -127], [127, 64]]


def test_a_scale_is_cut_to_19_bits_with_its_offset_above_it() -> None:
    one = int(np.float32(1.0).view(np.uint32))
    assert npu_trans_quant_param(torch.tensor([1.0])).tolist() == [one | 1 << 46]
    above = torch.tensor([1.0 + 2.0**-10 + 2.0**-11])
    cut, rounded = (npu_trans_quant_param(above, round_mode=mode) for mode in (0, 1))
    assert scale_and_offset(cut)[0].tolist() == [1.0 + 2.0**-10]
    assert scale_and_offset(rounded)[0].tolist() == [1.0 + 2.0**-9]
    shifted = npu_trans_quant_param(torch.tensor([1.0]), torch.tensor([-1.0, 1000.0]))
    assert [(word >> 37) & 0x1FF for word in shifted.tolist()] == [0x1FF, 255]


def test_a_weight_is_packed_eight_to_an_int32() -> None:
    weight = torch.tensor([[1, -1, 0, 7, -8, 2, 3, 4]], dtype=torch.int32)
    assert npu_convert_weight_to_int4pack(weight).tolist() == [[0x432870F1]]


def test_another_layout_keeps_the_numbers_and_owns_them() -> None:
    weight, scale = torch.arange(4, dtype=torch.uint8), torch.ones(2)
    found = npu_weight_quant_preprocess(weight, scale, 5, 285, 5)
    weight.zero_()
    assert found[0].tolist() == [0, 1, 2, 3]
    assert found[2:] == (None, None)


@pytest.mark.parametrize(
    ("bias", "expected"), [(torch.tensor([2], dtype=torch.int32), 6.0), (torch.tensor([2.0]), 5.0)]
)
def test_a_whole_bias_is_added_before_the_scales(bias: torch.Tensor, expected: float) -> None:
    x = torch.tensor([[2]], dtype=torch.int32)
    found = npu_dequant_bias(x, torch.tensor([0.5]), torch.tensor([3.0]), bias)
    assert (found.tolist(), found.dtype) == ([[expected]], torch.float16)


def test_a_convolution_is_padded_with_its_offset() -> None:
    x, weight = torch.ones(1, 1, 1, 1, dtype=torch.int8), torch.ones(1, 1, 1, 2, dtype=torch.int8)
    found = npu_quant_conv2d(x, weight, torch.tensor([2.0]), pads=[0, 1], offset_x=5, output_dtype=torch.float32)
    assert found.tolist() == [[[[12.0, 12.0]]]]


def test_what_is_scattered_leaves_the_rest_as_it_was() -> None:
    cache = torch.zeros(2, 3, 1, dtype=torch.int8)
    updates = torch.tensor([[[1.0]], [[-2.5]]])
    arguments: tuple[Any, ...] = (torch.tensor([2, 0]), updates, torch.tensor([0.5]), torch.tensor([1]))
    written = npu_quant_scatter(cache, *arguments)
    assert written.flatten().tolist() == [0, 0, 3, -4, 0, 0]
    assert cache.abs().sum() == 0
    assert npu_quant_scatter_(cache, *arguments) is cache
    assert torch.equal(cache, written)


def test_tokens_beyond_the_capacity_are_dropped() -> None:
    x, experts = torch.tensor([[127.0], [254.0], [381.0]]), torch.tensor([[1], [1], [0]], dtype=torch.int32)
    rows, places, tokens, before, scales = npu_moe_init_routing_quant(
        x, experts, expert_num=2, drop_pad_mode=1, expert_capacity=1, expert_tokens_before_capacity_flag=True
    )
    assert rows.tolist() == [[[127]], [[127]]]
    assert places.tolist() == [1, -1, 0]
    assert tokens is None
    assert before is not None
    assert before.tolist() == [1, 2]
    assert scales is not None
    assert scales.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_rotate_quant(torch.ones(2, 4), torch.eye(4), alpha=torch.tensor([0.5])), "alpha"),
        (lambda: npu_rotate_quant(torch.ones(2, 4), torch.eye(4), transpose_y=True), "transpose_y"),
        (lambda: npu_kronecker_quant(torch.ones(1, 1, 8), torch.eye(1), torch.eye(8), 1.0, 5), "dst_dtype 5"),
        (lambda: npu_dynamic_block_quant(torch.ones(2, 2), dst_type=296), "dst_type 296"),
        (
            lambda: npu_quant_scatter(*(torch.ones(1, 1, 1, dtype=torch.int8),) * 4, reduce="add"),
            "reduce",
        ),
    ],
)
def test_what_is_not_defined_is_named(call: Callable[[], object], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"no golden definition with {named}"):
        call()
