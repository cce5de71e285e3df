from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.extensions.monitor.watch.batched_statistics import Meter
from msprobe_hooks.extensions.monitor.watch.config import STATISTICS
from msprobe_hooks.extensions.monitor.watch.host_statistics import measure as measure_array


def measured(*tensors, statistics=STATISTICS, eps=1e-8):
    """Return the statistics of each tensor by name."""
    meter = Meter(statistics, eps)
    rows = meter.fetch(meter.measure(tensors))
    found = [dict(zip(statistics, row, strict=True)) for row in rows]
    return found[0] if len(found) == 1 else found


def expected(values, tiny, eps=1e-8):
    """Return the same numbers from float64 values by their definitions."""
    sizes = np.abs(values)
    norm = math.sqrt(math.fsum(values * values))
    return {
        "norm": norm,
        "min": values.min(),
        "max": values.max(),
        "zeros": np.mean(sizes < eps),
        "nans": 0.0,
        "mean": math.fsum(values) / values.size,
        "rms": norm / math.sqrt(values.size),
        "subnormals": np.mean((sizes > 0) & (sizes < tiny)),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 7, 65536, 150_001])
def test_statistics_are_those_of_the_values_in_float64(dtype, count):
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(count)).to(dtype)
    tensor[::3] = 0
    tensor[1::7] = torch.finfo(dtype).smallest_normal / 2
    found = measured(tensor)
    # Sums of large narrow tensors are in float32 over rows of 256, which is as many roundings at most.
    rounding = 1e-12 if count < 10_000 or dtype is torch.float64 else 256 * 2**-24
    for name, value in expected(tensor.double().numpy(), torch.finfo(dtype).smallest_normal).items():
        scale = tensor.double().abs().mean().item() if name == "mean" else abs(value)
        assert found[name] == pytest.approx(value, rel=0, abs=rounding * scale), name


def test_norms_of_large_tensors_are_off_by_far_less_than_float32_shows():
    tensor = torch.rand(1 << 20, generator=torch.Generator().manual_seed(0)) + 0.1
    found = measured(tensor)
    assert found["norm"] == pytest.approx(expected(tensor.double().numpy(), 0.0)["norm"], rel=1e-8)
    assert found["mean"] == pytest.approx(expected(tensor.double().numpy(), 0.0)["mean"], rel=1e-8)


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    names=st.lists(st.sampled_from(STATISTICS), min_size=1, unique=True),
)
@settings(max_examples=50, deadline=None)
def test_a_statistic_does_not_depend_on_which_others_are_wanted(values, names):
    tensor = torch.tensor(values)
    whole = measured(tensor)
    assert measured(tensor, statistics=names) == pytest.approx({name: whole[name] for name in names}, nan_ok=True)


# Small tensors are measured together, large ones each by itself.
@pytest.mark.parametrize("rows", [4, 5000], ids=["small", "large"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: torch.arange(6.0 * rows).reshape(rows, 6).t(),
        lambda rows: torch.arange(12.0 * rows).reshape(rows, 3, 2, 2).to(memory_format=torch.channels_last),
        lambda rows: torch.arange(12.0 * rows).reshape(rows, 3, 2, 2).to(memory_format=torch.channels_last)[1:],
        lambda rows: torch.arange(6.0 * rows)[::2],
        lambda rows: torch.arange(4.0).expand(rows, 4),
        lambda rows: torch.arange(3 * rows).reshape(rows, 3),
        lambda rows: torch.arange(2 * rows) % 3 == 0,
        lambda rows: (torch.arange(2.0 * rows) % 7).to(torch.float8_e4m3fn),
        lambda rows: torch.complex(torch.arange(2.0 * rows), torch.ones(2 * rows)).conj(),
    ],
    ids=["turned", "channels last", "a slice", "strided", "expanded", "integers", "bool", "float8", "complex"],
)
def test_layout_and_kind_of_numbers_do_not_matter(make, rows):
    tensor = make(rows)
    values = (tensor.abs() if tensor.is_complex() else tensor).double()
    found = measured(tensor)
    for name, value in expected(values.numpy().flatten(), 0.0).items():
        assert found[name] == pytest.approx(value), name


def test_many_tensors_measured_together_have_the_statistics_of_each():
    draw = torch.Generator().manual_seed(0)
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.complex64]
    tensors = [torch.randn(1 + number % 90, 3, generator=draw).mul(4).to(kinds[number % 7]) for number in range(600)]
    tensors[0][0, 1], tensors[8][0, 0], tensors[9][0, 2] = math.nan, math.inf, 0.0
    tensors[3] = torch.randn(40, 6, generator=draw).t()[::2]
    tensors[4], tensors[5] = torch.tensor(7, dtype=torch.int32), torch.empty(0, 3)
    tensors[14] = torch.tensor([1e-40, 0.0, -1e-9, 1.0])
    tensors[21] = torch.tensor(-0.5)
    for tensor, found in zip(tensors, measured(*tensors), strict=True):
        array = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
        reported = dict(zip(STATISTICS, measure_array(array, STATISTICS, 1e-8), strict=True))
        # The smallest normal numbers of bfloat16 and float32 are the same.
        assert found == pytest.approx(reported, rel=1e-6 if tensor.is_complex() else 1e-12, nan_ok=True)


def test_norms_of_numbers_whose_squares_leave_float32_are_right():
    found = measured(torch.full((100,), 1e30), torch.full((100,), 1e-30), torch.full((70_000,), 1e-30))
    assert [one["norm"] for one in found] == pytest.approx([1e31, 1e-29, math.sqrt(70_000) * 1e-30], rel=1e-6)


@pytest.mark.parametrize("count", [4, 10_000])
def test_nan_and_inf_are_reported(count):
    infinite = torch.ones(count)
    infinite[1] = -math.inf
    broken = infinite.clone()
    broken[2:4] = math.nan
    found = measured(broken)
    assert found["nans"] == 2
    assert math.isnan(found["min"])
    assert math.isnan(found["norm"])
    found = measured(infinite)
    assert found["nans"] == 0
    assert (found["min"], found["max"], found["norm"]) == (-math.inf, 1.0, math.inf)


def test_what_cannot_be_measured_has_nan_for_all():
    for tensor in (torch.empty(0), torch.empty(3, device="meta"), torch.eye(2).to_sparse()):
        assert all(math.isnan(value) for value in measured(tensor).values())


def test_id_is_the_value_of_a_tensor_without_dimensions():
    assert measured(torch.tensor(3.5))["id"] == 3.5
    assert math.isnan(measured(torch.tensor([3.5]))["id"])


@pytest.mark.parametrize("times", [1, 5000])
def test_zeros_of_half_precision_are_counted_below_eps_and_not_below_what_it_rounds_to(times):
    assert measured(torch.tensor([0.0, 1e-7, 1.0, 2.0], dtype=torch.float16).repeat(times))["zeros"] == 0.25


def test_numbers_that_wait_on_a_device_are_fetched_into_their_places():
    waiting = [(torch.tensor(1.5), 2.0, torch.tensor(3)), (4.0, torch.tensor(5.5, dtype=torch.float64), 6.0)]
    assert Meter(("norm",), 0.0).fetch(waiting) == [(1.5, 2.0, 3.0), (4.0, 5.5, 6.0)]


def test_small_tensors_are_measured_as_they_were_when_they_were_met():
    meter = Meter(("max", "norm"), 0.0)
    tensor = torch.tensor([3.0, 4.0])
    before = meter.measure([tensor])
    tensor.zero_()
    after = meter.measure([tensor])
    assert meter.fetch([*before, *after]) == [(4.0, 5.0), (0.0, 0.0)]
    assert meter.fetch(before) == [(4.0, 5.0)]


def test_more_small_tensors_than_are_kept_come_out_in_their_order():
    meter = Meter(("max",), 0.0)
    rows = [row for number in range(100) for row in meter.measure([torch.full((1 << 13,), float(number))])]
    assert meter.fetch(rows) == [(float(number),) for number in range(100)]


def test_small_tensors_that_come_together_are_measured_however_many_they_are():
    meter, tensors = Meter(("norm", "max"), 0.0), [torch.full((1 << 13,), float(number)) for number in range(40)]
    rows = meter.fetch(meter.measure(tensors))
    assert rows == [(pytest.approx(number * math.sqrt(1 << 13)), float(number)) for number in range(40)]
