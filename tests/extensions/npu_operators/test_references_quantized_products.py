"""Products of quantized matrices against an independent computation, and numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.matmul.grouped_matmul import npu_add_quant_matmul
from pytest_msprobe.extensions.npu_operators.matmul.operands import (
    FLOAT4_E1M2,
    FLOAT4_E2M1,
    FLOAT8_E8M0,
    HIFLOAT8,
    INT4,
    numbers,
    scale_and_offset,
)
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import (
    npu_quant_matmul,
    npu_quant_matmul_dequant,
    npu_quant_matmul_gelu,
    npu_weight_quant_batchmatmul,
)
from tests.support.cann.packed import pack_int4, pack_scale


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def to_int8(values: object) -> list[object]:
    """Each number by Python's round, which goes half to even, kept within [-128, 127]."""
    return np.vectorize(lambda value: max(-128, min(127, round(Fraction(float(value))))))(np.asarray(values)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("output_dtype", [None, torch.float64])
def test_products_of_int8_are_exact_before_they_are_scaled(output_dtype: torch.dtype | None) -> None:
    x1, x2 = whole(2, 3, 40), whole(40, 5, seed=1)
    scale, pertoken, bias = draw(5, seed=2) / 5e3, draw(3, seed=3).abs(), whole(5, seed=4).int() * 100
    shift = draw(5, seed=5)
    found = npu_quant_matmul(x1, x2, scale, pertoken_scale=pertoken, bias=bias, offset=shift, output_dtype=output_dtype)
    expected = np.empty((2, 3, 5))
    for b, i, j in np.ndindex(2, 3, 5):
        total = sum(int(x1[b, i, k]) * int(x2[k, j]) for k in range(40)) + int(bias[j])
        expected[b, i, j] = total * float(scale[j]) * float(pertoken[i]) + float(shift[j])
    if output_dtype is None:
        assert found.tolist() == to_int8(expected)
    else:
        close(found, expected)


def test_a_float_bias_is_added_to_the_scaled_product() -> None:
    x1, x2, scale, bias = whole(3, 7), whole(7, 4, seed=1), draw(4, seed=2), draw(4, seed=3)
    found = npu_quant_matmul(x1, x2, scale, bias=bias, output_dtype=torch.float64)
    close(found, x1.numpy().astype(int) @ x2.numpy().astype(int) * scale.numpy() + bias.numpy())


def test_a_quantized_weight_is_widened_by_column_or_by_group_of_rows() -> None:
    x, weight, bias = draw(3, 8), whole(8, 5, seed=1), draw(5, seed=2)
    scale, offset = draw(2, 5, seed=3), draw(2, 5, seed=4)
    widened = np.empty((8, 5))
    for i, j in np.ndindex(8, 5):
        widened[i, j] = (int(weight[i, j]) + float(offset[i // 4, j])) * float(scale[i // 4, j])
    y = x.numpy() @ widened + bias.numpy()
    close(npu_weight_quant_batchmatmul(x, weight, scale, offset, bias=bias, antiquant_group_size=4), y)
    quantized = npu_weight_quant_batchmatmul(
        x, weight, scale, offset, torch.tensor([0.1]), torch.tensor([2.0]), bias, antiquant_group_size=4
    )
    assert quantized.tolist() == to_int8(y * np.float64(np.float32(0.1)) + 2)
    close(npu_weight_quant_batchmatmul(x, weight, scale[0]), x.numpy() @ (weight.numpy() * scale[0].numpy()))


def test_the_input_of_a_product_with_a_quantized_weight_has_a_gradient() -> None:
    x, weight, scale = draw(3, 4).requires_grad_(), whole(4, 5), draw(5, seed=1)
    assert torch.autograd.gradcheck(lambda x: npu_weight_quant_batchmatmul(x, weight, scale), (x,))


def one(value: int) -> Tensor:
    return torch.tensor([[value]], dtype=torch.int8)


def test_a_scale_of_float32_loses_what_the_device_does_not_read() -> None:
    # 2^-7 + 2^-17 + 2^-18 keeps ten bits behind the first: 2^-7 + 2^-17.
    scale = torch.tensor([2**-7 + 2**-17 + 2**-18])
    product = 127 * 127
    found = npu_quant_matmul(one(127), one(127), scale, output_dtype=torch.float16)
    assert float(found) == float(torch.tensor(product * (2**-7 + 2**-17)).half())
    wide = npu_quant_matmul(one(127), one(127), scale, output_dtype=torch.float32)
    assert float(wide) == pytest.approx(product * float(scale), rel=1e-7)


def test_a_packed_scale_brings_its_offset_to_a_result_of_int8_alone() -> None:
    packed = pack_scale(torch.tensor([0.5]), torch.tensor([-3.0]))
    assert npu_quant_matmul(one(10), one(3), packed).tolist() == [[12]]
    assert npu_quant_matmul(one(10), one(3), packed, output_dtype=torch.float16).tolist() == [[15.0]]
    factor, offset = scale_and_offset(packed.view(torch.uint64))
    assert (factor.tolist(), None if offset is None else offset.tolist()) == ([0.5], [-3.0])


def test_a_result_of_int32_has_no_scale() -> None:
    found = npu_quant_matmul(
        one(10), one(3), torch.tensor([0.5]), bias=torch.tensor([4], dtype=torch.int32), output_dtype=torch.int32
    )
    assert (found.dtype, found.tolist()) == (torch.int32, [[34]])


def test_numbers_of_four_bits_are_read_from_the_lowest_on() -> None:
    assert numbers("api", torch.tensor([[0x76543210]], dtype=torch.int32)).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert numbers("api", torch.tensor([[-1]], dtype=torch.int32)).tolist() == [[-1] * 8]
    assert numbers("api", torch.tensor([0x8F], dtype=torch.uint8), INT4).tolist() == [-1, -8]
    values = torch.arange(-8, 8).reshape(2, 8)
    assert numbers("api", pack_int4(values).mT, None, 8).equal(values.mT.to(torch.int8))


def test_floats_of_four_bits_have_the_values_of_their_format() -> None:
    # Two in each byte, the lower first: 1 and -6, 0.5 and -0.0.
    stored = torch.tensor([0xF2, 0x81], dtype=torch.uint8)
    assert numbers("api", stored, FLOAT4_E2M1).tolist() == [1.0, -6.0, 0.5, 0.0]
    assert numbers("api", torch.tensor([0xF2], dtype=torch.uint8), FLOAT4_E1M2).tolist() == [0.5, -1.75]


def test_bytes_of_powers_of_two_are_read_as_such() -> None:
    stored = torch.tensor([126, 127, 130, 255], dtype=torch.uint8)
    assert numbers("api", stored, FLOAT8_E8M0)[:3].tolist() == [0.5, 1.0, 8.0]
    assert bool(numbers("api", stored.view(torch.int8), FLOAT8_E8M0)[3].isnan())


def test_hifloat8_has_the_values_of_its_paper() -> None:
    # Zero, the smallest, the largest below normal, one, 1.125, two, -8, the largest, infinity, and no number.
    codes = [0x00, 0x01, 0x07, 0x08, 0x09, 0x10, 0xA8, 0x6E, 0x6F, 0x80]
    found = numbers("api", torch.tensor(codes, dtype=torch.uint8), HIFLOAT8)
    assert found[:9].tolist() == [0.0, 2**-22, 2**-16, 1.0, 1.125, 2.0, -8.0, 2.0**15, float("inf")]
    assert bool(found[9].isnan())
    every = numbers("api", torch.arange(256).to(torch.uint8), HIFLOAT8)
    assert len(set(every[1:0x6F].tolist())) == 0x6E


def test_a_dtype_that_torch_does_not_have_is_refused_by_its_number() -> None:
    with pytest.raises(NotImplementedError, match="npu_quant_matmul has no golden definition with dtype 299"):
        npu_quant_matmul(one(1), one(1), torch.ones(1), x1_dtype=299)


def test_rows_of_zeros_are_quantized_to_zeros() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, -2.0]], dtype=torch.float64)
    found = npu_quant_matmul_dequant(x, torch.ones(1, 2, dtype=torch.int8), torch.ones(1, dtype=torch.float64))
    # The second row is 64 (63.5 to even) and -127, in steps of 2 / 127.
    close(found, [[0.0], [-63 * 2 / 127]])


def test_accumulated_products_change_nothing_but_their_copy() -> None:
    before, x = torch.ones(2, 2, dtype=torch.float64), torch.eye(2)
    found = npu_add_quant_matmul(before, x, x, torch.tensor([3.0]), x1_scale=torch.tensor([0.5]))
    assert (found.tolist(), before.tolist()) == ([[2.5, 1.0], [1.0, 2.5]], [[1.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_quant_matmul_gelu(one(1), one(1), draw(1), draw(1), approximate="gelu"), "approximate gelu"),
        (lambda: npu_quant_matmul_dequant(draw(1, 1), one(1), draw(1), x_offset=draw(1)), "x_offset"),
    ],
)
def test_what_has_no_golden_definition_is_named(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"has no golden definition with {named}"):
        call()
