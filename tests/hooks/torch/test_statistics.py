from __future__ import annotations

import math
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.recording.checksums import ChecksumThread
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.torch.recorder import take_crc32, xor64
from msprobe_hooks.torch.statistics import LARGE, Deferred, _reduce, fetch, measure

FLOATS = st.floats(-1e3, 1e3, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=40))
def test_float32_statistics_are_those_of_numpy(values):
    tensor = torch.tensor(values, dtype=torch.float32)
    wide = np.array(values, dtype=np.float64)
    found = measure(tensor)
    assert (found.max, found.min) == (wide.max(), wide.min())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-5, abs=1e-3)
    assert found.norm == pytest.approx(np.sqrt((wide * wide).sum()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_large_tensor_has_the_norm_and_the_mean_that_float64_finds(dtype):
    generator = torch.Generator().manual_seed(7)
    tensor = (torch.randn(5, 1 << 20, generator=generator) + 0.25).to(dtype)
    found, wide = measure(tensor), tensor.double()
    assert (found.max, found.min) == (wide.max().item(), wide.min().item())
    assert found.mean == pytest.approx(wide.mean().item(), rel=1e-5)
    assert found.norm == pytest.approx(torch.linalg.vector_norm(wide).item(), rel=5e-5)


@pytest.mark.parametrize("place", [0, LARGE, -1])
@pytest.mark.parametrize(("value", "norm"), [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, math.inf)])
def test_one_value_of_a_large_tensor_that_is_not_finite_is_reported(value, norm, place):
    tensor = torch.linspace(-1.0, 1.0, LARGE + 100)
    tensor[place] = value
    found = measure(tensor)
    kept = tensor[torch.isfinite(tensor)]
    greatest, least = (value if math.isnan(value) else one.item() for one in (tensor.max(), tensor.min()))
    assert (found.max, found.min, found.norm) == pytest.approx((greatest, least, norm), nan_ok=True)
    assert found.finite_max == (None if math.isfinite(greatest) else kept.max().item())
    assert found.finite_min == (None if math.isfinite(least) else kept.min().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mean_and_norm_of_a_large_tensor_do_not_overflow(dtype):
    lowest = torch.finfo(dtype).min
    found = measure(torch.full((LARGE + 100,), lowest, dtype=dtype))
    assert found.mean == pytest.approx(lowest, rel=1e-6)
    assert found.norm == pytest.approx(math.sqrt(LARGE + 100) * abs(lowest), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_integers_keep_every_digit(dtype):
    info = torch.iinfo(dtype)
    found = measure(torch.tensor([info.max, info.min, 1], dtype=dtype))
    assert (found.max, found.min) == (info.max, info.min)
    assert type(found.max) is int


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_integers_keep_every_digit(dtype):
    top = torch.iinfo(dtype).max
    found = measure(torch.tensor([top, 3, 0], dtype=dtype))
    assert (found.max, found.min) == (top, 0)


def test_large_integer_tensors_are_measured_in_parts():
    tensor = torch.arange(5_000_000, dtype=torch.int64)
    found = measure(tensor)
    n = 4_999_999
    assert found.norm == pytest.approx(math.sqrt(n * (n + 1) * (2 * n + 1) / 6), rel=1e-12)
    assert (found.max, found.mean) == (n, n / 2)


def test_float64_is_not_squeezed_through_float32():
    found = measure(torch.tensor([1.0 + 1e-12, 1.0], dtype=torch.float64))
    assert found.max == 1.0 + 1e-12
    assert found.mean == 1.0 + 5e-13


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_norm_of_half_precision_does_not_overflow(dtype):
    found = measure(torch.full((1000,), 60000.0, dtype=dtype))
    exact = torch.tensor(60000.0, dtype=dtype).item()
    assert found.norm == pytest.approx(exact * math.sqrt(1000), rel=1e-5)
    assert found.mean == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_mean_and_norm_of_finite_values_do_not_overflow(dtype):
    lowest = torch.finfo(dtype).min
    values = torch.full((64,), lowest, dtype=dtype)
    values[::4] = 1.0
    found = measure(values)
    wide = np.abs(lowest) if dtype.is_complex else lowest
    assert found.mean == pytest.approx(0.75 * wide, rel=1e-6)
    # of float64's own lowest value not even the norm of 48 of them is a number
    expected = math.inf if dtype is torch.float64 else math.sqrt(48) * abs(lowest)
    assert found.norm is None if dtype.is_complex else found.norm == pytest.approx(expected, rel=1e-6)


def test_sums_that_overflow_both_ways_have_a_mean():
    largest = torch.finfo(torch.float32).max
    assert measure(torch.tensor([largest, -largest] * 40000)).mean == 0.0


def test_booleans_have_any_and_all():
    found = measure(torch.tensor([True, False]))
    assert (found.max, found.min, found.mean, found.norm) == (True, False, None, None)


def test_complex_numbers_are_measured_by_magnitude():
    found = measure(torch.tensor([3 + 4j, 0j]))
    assert (found.max, found.min, found.mean, found.norm) == (5.0, 0.0, 2.5, None)


def test_float8_is_measured_exactly():
    found = measure(torch.tensor([1.5, -448.0]).to(torch.float8_e4m3fn))
    assert (found.max, found.min) == (1.5, -448.0)


def test_a_single_value_is_its_own_statistics():
    found = measure(torch.tensor(-2.5))
    assert (found.max, found.min, found.mean, found.norm) == (-2.5, -2.5, -2.5, -2.5)


@pytest.mark.parametrize("tensor", [torch.empty(0), torch.empty(3, device="meta"), torch.ones(3).to_sparse()], ids=str)
def test_what_has_no_values_has_no_statistics(tensor):
    found = measure(tensor)
    assert (found.max, found.min, found.mean, found.norm) == (None,) * 4


@pytest.mark.parametrize(
    ("values", "largest", "finite"),
    [
        ([1.0, math.inf, 2.0], math.inf, 2.0),
        ([math.inf, math.nan], math.nan, math.inf),
        ([math.nan, math.nan], math.nan, math.nan),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_infinities_and_nan_show_and_the_finite_extrema_too(values, largest, finite, dtype):
    found = measure(torch.tensor(values, dtype=dtype))
    assert found.max == pytest.approx(largest, nan_ok=True)
    assert found.finite_max == pytest.approx(finite, nan_ok=True)


@pytest.mark.parametrize("size", [1, 3, 1000, LARGE + 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.float8_e5m2])
def test_elements_that_are_not_finite_are_counted(size, dtype):
    values = [math.nan, math.inf, -math.inf, 1.0, math.nan, 2.0, -3.0]
    tensor = torch.tensor((values * (size // len(values) + 1))[:size]).to(dtype)
    found = measure(tensor)
    expected = [
        sum(map(is_one, tensor.float().tolist())) for is_one in (math.isnan, math.inf.__eq__, (-math.inf).__eq__)
    ]
    assert [found.nan_count, found.posinf_count, found.neginf_count] == expected


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    repeated=st.sets(st.integers(0, 3)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]),
    last=st.sampled_from([2.0, math.nan, math.inf]),
)
def test_an_expanded_tensor_has_the_statistics_of_its_copy(shape, repeated, dtype, last):
    once = torch.linspace(-1.0, 1.0, math.prod(shape)).reshape(shape)
    once.view(-1)[-1] = 1.0 if dtype in (torch.int64, torch.bool) else last
    once = once.to(dtype)
    for dim in repeated & {*range(len(shape))}:
        once = once.narrow(dim, 0, 1)
    tensor = once.expand(shape)
    found, expected = measure(tensor), measure(tensor.contiguous())
    fields = ("max", "min", "mean", "norm", "finite_max", "finite_min", "nan_count", "posinf_count", "neginf_count")
    ours, theirs = ({field: getattr(each, field) for field in fields} for each in (found, expected))
    assert {field for field in fields if ours[field] is None} == {field for field in fields if theirs[field] is None}
    known = {field: value for field, value in ours.items() if value is not None}
    assert known == pytest.approx({field: theirs[field] for field in known}, rel=1e-5, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.float16])
def test_an_expanded_tensor_costs_what_it_has_in_memory(dtype):
    found = measure(torch.ones(1, dtype=dtype).expand(2**40))
    assert (found.max, found.min) == (1, 1)
    assert found.norm in (None, 2.0**20)


def test_what_is_finite_has_no_counts():
    found = measure(torch.ones(3))
    assert (found.nan_count, found.posinf_count, found.neginf_count) == (None, None, None)


@pytest.mark.parametrize("size", [10, 100_000])
def test_nan_reaches_both_extrema_at_any_size(size):
    tensor = torch.zeros(size)
    tensor[size // 2] = math.nan
    found = measure(tensor)
    assert math.isnan(found.max)
    assert math.isnan(found.min)


def crc32(tensor):
    """Return the CRC-32 that is recorded of a tensor."""
    statistics, thread = Statistics(), ChecksumThread()
    take_crc32(tensor, statistics, thread)
    thread.close()
    return statistics.checksum


def test_the_checksum_called_md5_is_the_crc32_of_the_bytes():
    # zlib.crc32(struct.pack("<3f", 1, 2, 3))
    want = f"{zlib.crc32(struct.pack('<3f', 1, 2, 3)):08x}"
    assert crc32(torch.tensor([1.0, 2.0, 3.0])) == want
    assert crc32(torch.tensor([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]])[:, 0]) == want


def test_the_memory_of_a_tensor_can_be_resized_after_its_checksum_was_taken():
    x, y = torch.ones(3), torch.ones(3, dtype=torch.bfloat16)
    for tensor in (x, y):
        crc32(tensor)
        assert tensor.resize_(5000).numel() == 5000


@given(st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_the_xor_checksum_folds_words_of_eight_bytes(values):
    padded = bytes(values) + bytes(-len(values) % 8)
    want = 0
    for place in range(0, len(padded), 8):
        want ^= int.from_bytes(padded[place : place + 8], "little")
    assert xor64(torch.tensor(values, dtype=torch.uint8)) == f"0x{want:016x}"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0, requires_grad=True) * 2,
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.tensor(5),
        torch.empty(0, 3),
        torch.arange(6).to(torch.bfloat16).reshape(2, 3).t(),
    ],
    ids=["transposed", "differentiable", "conjugate", "negative", "scalar", "empty", "bfloat16"],
)
def test_the_checksum_is_that_of_the_bytes_which_a_contiguous_copy_has(tensor):
    copy = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    assert crc32(tensor) == f"{zlib.crc32(bytes(copy.untyped_storage())):08x}"


def test_checksums_of_equal_bytes_are_equal_for_every_dtype():
    for dtype in (torch.bfloat16, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.int64):
        tensor = torch.ones(5).to(dtype)
        assert crc32(tensor) == crc32(tensor.clone()) != crc32(torch.zeros(5).to(dtype))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5, -2.0, 4.0]),
        torch.tensor([1.5, -2.0, 4.0]).half(),
        torch.tensor([7, -3], dtype=torch.int64),
        torch.tensor([True, False]),
        torch.tensor([3 + 4j, 0j]),
        torch.tensor(5),
        torch.tensor([2**64 - 1, 1], dtype=torch.uint64),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_numbers_fetched_from_a_device_are_the_same(tensor):
    reduced, rounds = _reduce(tensor, tensor.numel())
    waiting = Deferred(reduced=reduced, count=tensor.numel(), rounds=rounds, is_waiting=True)
    of_another, rounds = _reduce(torch.tensor([1.0, 2.0]), 2)
    other = Deferred(reduced=of_another, count=2, rounds=rounds, is_waiting=True)
    fetch([waiting, other])
    at_once = measure(tensor)
    assert (waiting.max, waiting.min, waiting.mean) == (at_once.max, at_once.min, at_once.mean)
    assert waiting.norm == at_once.norm
    assert other.max == 2.0
    assert not waiting.is_waiting


def test_the_norm_of_a_part_is_that_of_a_copy():
    part = torch.randn(4, 128, 192)[..., 64:128]
    assert measure(part).norm == measure(part.clone()).norm


@pytest.mark.parametrize("count", [1 << 14, (1 << 14) + 1, (1 << 20) + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extrema_do_not_depend_on_who_finds_them(dtype, count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=dtype)
    values[7], values[-1] = -100.0, 100.0
    for tensor in (values, values.requires_grad_()):
        with torch.no_grad():
            found = measure(tensor)
        assert (found.max, found.min) == (100.0, -100.0)


@pytest.mark.parametrize("count", [100, 1 << 15])
def test_values_that_are_negated_when_they_are_read_are_negated(count):
    found = measure(torch._neg_view(torch.arange(float(count))))
    assert (found.max, found.min, found.mean) == (0.0, 1.0 - count, (1.0 - count) / 2)
