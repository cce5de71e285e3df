"""Numbers of few bits, against torch's own casts and against the tables of their specifications."""

from __future__ import annotations

import pytest
import torch

from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    E1M2,
    E2M1,
    E4M3,
    E5M2,
    HIFLOAT8,
    INT4,
    INT8,
    INT32,
    UINT8,
    NumberFormat,
    decode_hifloat8,
    encode_hifloat8,
    float_dtype,
    number_format,
    numbers_in,
    round_to,
    store,
)
from tests.support.cann import small_floats

KINDS = {"e2m1": E2M1, "e1m2": E1M2, "e4m3": E4M3, "e5m2": E5M2, "hif8": HIFLOAT8, "int4": INT4, "int8": INT8}


def spread(count: int = 512) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-20, 12, (count,), generator=generator)
    return torch.ldexp(torch.randn(count, generator=generator, dtype=torch.float64), exponents)


@pytest.mark.parametrize("to", [E4M3, E5M2])
def test_floats_of_8_bits_are_rounded_as_torch_rounds_them(to: NumberFormat) -> None:
    values = spread().float().clamp(to.lowest, to.largest)
    assert torch.equal(store(values, to).view(torch.uint8), values.to(to.stored).view(torch.uint8))


@pytest.mark.parametrize("mode", ["rint", "round", "floor"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_rounded_and_stored_as_the_table_of_all_numbers_has_it(kind: str, mode: str) -> None:
    values = torch.cat([spread(), torch.arange(-16, 16) / 8.0, torch.tensor([0.0, -0.0, 1e9, -1e9] * 2)])
    if kind == "hif8" and mode == "floor":
        with pytest.raises(NotImplementedError, match="rounding to hifloat8 by floor"):
            round_to(values, HIFLOAT8, mode)
        return
    found, expected = store(values, KINDS[kind], mode), small_floats.stored(values.numpy(), kind, mode)
    assert found.dtype is expected.dtype
    assert found.view(torch.uint8).tolist() == expected.view(torch.uint8).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_read_again(kind: str) -> None:
    numbers = round_to(spread(), KINDS[kind])
    assert torch.equal(numbers_in(store(numbers, KINDS[kind]), KINDS[kind]), numbers)


def test_eight_whole_numbers_lie_in_an_int32_from_the_lowest_bits_on() -> None:
    found = store(torch.tensor([1, 2, 3, 4, 5, 6, 7, -8]), INT4)
    assert found.tolist() == [0x87654321 - 2**32]
    assert numbers_in(found, INT4).tolist() == [1, 2, 3, 4, 5, 6, 7, -8]


def test_two_floats_lie_in_a_byte_the_first_in_the_lower_half() -> None:
    assert store(torch.tensor([0.5, -6.0]), E2M1).tolist() == [0xF1]
    assert store(torch.tensor([0.25, -1.75]), E1M2).tolist() == [0xF1]


# bits and numbers of the format's paper (table 2): the largest, the smallest, and what is between two prefixes
@pytest.mark.parametrize(
    ("bits", "number"),
    [
        (0b0_11_0111_0, 2.0**15),
        (0b0_11_1111_0, 2.0**-15),
        (0b0_10_011_00, 2.0**7),
        (0b0_10_011_11, 1.75 * 2.0**7),
        (0b0_01_01_111, 1.875 * 2.0**3),
        (0b0_001_0_000, 2.0),
        (0b0_0001_000, 1.0),
        (0b0_0000_001, 2.0**-22),
        (0b1_0000_111, -(2.0**-16)),
        (0, 0.0),
    ],
)
def test_hifloat8_has_the_numbers_of_its_paper(bits: int, number: float) -> None:
    assert float(decode_hifloat8(torch.tensor(bits, dtype=torch.uint8))) == number
    assert int(encode_hifloat8(torch.tensor(number, dtype=torch.float64))) == bits


def test_hifloat8_keeps_infinity_and_what_is_no_number() -> None:
    found = decode_hifloat8(torch.tensor([0x6F, 0xEF, 0x80], dtype=torch.uint8))
    assert found[:2].tolist() == [torch.inf, -torch.inf]
    assert found[2].isnan()
    assert int(encode_hifloat8(torch.tensor(torch.nan))) == 0x80


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (torch.int8, INT8),
        (torch.qint8, INT8),
        (1, INT8),
        (13, UINT8),
        (3, INT32),
        (torch.quint4x2, INT4),
        (16, INT4),
        (285, INT4),
        (23, E5M2),
        (291, E5M2),
        (torch.float8_e4m3fn, E4M3),
        (292, E4M3),
        (296, E2M1),
        (297, E1M2),
        (290, HIFLOAT8),
        (torch.float64, None),
        (None, None),
        (9999, None),
    ],
)
def test_a_dtype_argument_names_a_format(given: object, found: NumberFormat | None) -> None:
    assert number_format(given) is found


def test_a_dtype_argument_names_a_float() -> None:
    assert float_dtype(None, torch.float16) is torch.float16
    assert float_dtype(15, torch.float16) is torch.bfloat16
    assert float_dtype(283, torch.float16) is torch.bfloat16
    with pytest.raises(NotImplementedError, match="a result of the dtype 3"):
        float_dtype(3, torch.float16)
