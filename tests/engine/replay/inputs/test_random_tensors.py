"""Random tensors: what the statistics say holds exactly, and nothing else decides the values.

What holds of small tensors holds as it is for those that are drawn as large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.inputs import large_tensors, random_tensors
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.results.outcomes import Skip, SkipReason

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)
INTEGER_DTYPES = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8_DTYPES = tuple(getattr(torch, name) for name in dir(torch) if name.startswith("float8"))


Draw = Callable[[TensorElement, int], torch.Tensor]


@pytest.fixture(params=["small", "large"], scope="module")
def random_tensor(request: pytest.FixtureRequest) -> Iterator[Draw]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large":
            patch.setattr(large_tensors, "LARGE", 1)
        yield random_tensors.random_tensor


def element(dtype: torch.dtype | str, shape: tuple[int, ...] = (40,), **statistics: Any) -> TensorElement:
    return TensorElement(type="torch.Tensor", dtype=str(dtype), shape=shape, **statistics)


def whole(tensor: torch.Tensor) -> list[int]:
    """Values as Python integers: torch's own reductions do not know wide unsigned types."""
    return [int(value) for value in tensor.numpy().ravel()]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


@given(st.integers(0, 2**40), st.text(max_size=20), st.text(max_size=20))
def test_a_stream_depends_on_seed_record_and_path_alone(seed: int, record: str, path: str) -> None:
    assert stream_seed(seed, record, path) == stream_seed(seed, record, path)
    assert stream_seed(seed, record, path) != stream_seed(seed + 1, record, path)
    assert stream_seed(seed, record, path) != stream_seed(seed, record + "x", path)
    assert stream_seed(seed, record, path) != stream_seed(seed, record, path + "x")
    assert 0 <= stream_seed(seed, record, path) < 2**63


@pytest.mark.parametrize(
    "dtype", [*INTEGER_DTYPES, *FLOAT_DTYPES, *FLOAT8_DTYPES, torch.bool, torch.complex64], ids=str
)
def test_values_do_not_depend_on_what_was_drawn_before(random_tensor: Draw, dtype: torch.dtype) -> None:
    wanted = element(dtype, max=100, min=0)
    first = random_tensor(wanted, 7)
    torch.rand(5)
    random_tensor(element(torch.float32), 8)
    assert same(random_tensor(wanted, 7), first)
    assert first.dtype is dtype
    assert first.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint32, torch.float32, torch.bfloat16, torch.complex128], ids=str)
def test_other_seeds_give_other_values(random_tensor: Draw, dtype: torch.dtype) -> None:
    wanted = element(dtype, max=100, min=0)
    assert not same(random_tensor(wanted, 1), random_tensor(wanted, 2))


@given(st.data(), st.sampled_from(INTEGER_DTYPES), SHAPES, st.integers(0, 2**62))
def test_integers_stay_in_their_range_and_hit_its_ends(
    random_tensor: Draw, data: st.DataObject, dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    limits = torch.iinfo(dtype)
    low = data.draw(st.integers(limits.min, limits.max))
    high = data.draw(st.integers(low, limits.max))
    values = whole(random_tensor(element(dtype, shape, max=high, min=low), seed))
    assert max(values) == high
    assert all(low <= value <= high for value in values)
    assert len(values) == 1 or min(values) == low


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
def test_statistics_beyond_the_dtype_are_cut_to_it(random_tensor: Draw, dtype: torch.dtype) -> None:
    # Version 1.2.2 wrote integers as float32: 2**63 - 1 became 9223372036854775808.0.
    values = whole(random_tensor(element(dtype, max=1.8446744073709552e19, min=-9.3e18), 3))
    assert (min(values), max(values)) == (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


def test_a_constant_at_the_end_of_int64_is_drawn(random_tensor: Draw) -> None:
    largest = 2**63 - 1
    assert set(whole(random_tensor(element(torch.int64, max=largest, min=largest), 0))) == {largest}


def test_integer_statistics_in_the_wrong_order_or_missing_still_give_integers(random_tensor: Draw) -> None:
    assert set(whole(random_tensor(element(torch.int32, max=3, min=5), 0))) <= {3, 4, 5}
    assert set(whole(random_tensor(element(torch.int32), 0))) == {0, 1}


@given(st.data(), st.sampled_from(FLOAT_DTYPES), SHAPES, st.integers(0, 2**62))
def test_floats_stay_in_their_range_and_hit_its_ends(
    random_tensor: Draw, data: st.DataObject, dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    largest = torch.finfo(dtype).max
    bounds = st.floats(-largest, largest).map(lambda value: torch.tensor(value, dtype=dtype).item())
    low, high = sorted((data.draw(bounds), data.draw(bounds)))
    values = random_tensor(element(dtype, shape, max=high, min=low), seed).double()
    assert values.max().item() == high
    assert bool((values >= low).all())
    assert values.numel() == 1 or values.min().item() == low


def test_a_range_wider_than_the_dtype_spans_is_filled_evenly(random_tensor: Draw) -> None:
    for dtype, end in ((torch.float16, 60000.0), (torch.float32, 3.4e38), (torch.float64, 1.7e308)):
        values = random_tensor(element(dtype, (1000,), max=end, min=-end), 0).double()
        assert bool(values.isfinite().all())
        assert 0.2 < (values > end / 2).double().mean().item() < 0.3


@given(st.floats(-5, 5), st.floats(0.01, 0.2))
def test_peaked_statistics_give_peaked_values(random_tensor: Draw, mean: float, deviation: float) -> None:
    count = 4000
    norm = math.sqrt(count * (mean**2 + deviation**2))
    values = random_tensor(element(torch.float32, (count,), max=mean + 10, min=mean - 10, mean=mean, norm=norm), 0)
    assert values.double()[1:-1].mean().item() == pytest.approx(mean, abs=6 * deviation / math.sqrt(count))
    assert values.double()[1:-1].std().item() == pytest.approx(deviation, rel=0.1)
    assert (values.max().item(), values.min().item()) == pytest.approx((mean + 10, mean - 10))


def test_a_nan_of_version_1_2_2_is_one_nan_among_the_finite_values(random_tensor: Draw) -> None:
    nan = math.nan
    values = random_tensor(element(torch.float32, max=nan, min=nan, finite_max=2.0, finite_min=-3.0), 0)
    assert int(values.isnan().sum()) == 1
    finite = values[~values.isnan()]
    assert (finite.min().item(), finite.max().item()) == (-3.0, 2.0)


@given(counts=st.tuples(*[st.integers(0, 4)] * 3), finite=st.integers(1, 6))
def test_infinities_next_to_nan_are_drawn_too(random_tensor: Draw, counts: tuple[int, int, int], finite: int) -> None:
    nans, positive, negative = counts
    top = math.nan if nans else math.inf if positive else 2.0
    low = math.nan if nans else -math.inf if negative else -3.0
    recorded = element(
        torch.float32, (sum(counts) + finite + 2,), max=top, min=low, finite_max=2.0, finite_min=-3.0,
        nan_count=nans, posinf_count=positive, neginf_count=negative,
    )  # fmt: skip
    values = random_tensor(recorded, 0)
    found = (values.isnan().any(), values.isposinf().any(), values.isneginf().any(), values.isfinite().any())
    assert tuple(map(bool, found)) == (bool(nans), bool(positive), bool(negative), True)


@pytest.mark.parametrize(("counts", "expected"), [((2, 0, 0), math.nan), ((0, 2, 0), math.inf), ((0, 0, 2), -math.inf)])
def test_where_all_elements_are_of_one_kind_all_drawn_ones_are(
    random_tensor: Draw, counts: tuple[int, int, int], expected: float
) -> None:
    nan, posinf, neginf = counts
    recorded = element(
        torch.float32, (2,), max=expected, min=expected, nan_count=nan, posinf_count=posinf, neginf_count=neginf
    )
    assert random_tensor(recorded, 0).tolist() == pytest.approx([expected, expected], nan_ok=True)


def test_a_nan_without_finite_extrema_as_in_26_is_one_nan_too(random_tensor: Draw) -> None:
    values = random_tensor(element(torch.bfloat16, max=math.nan, min=math.nan), 0)
    assert int(values.isnan().sum()) == 1


def test_nan_as_finite_extrema_means_that_all_is_nan(random_tensor: Draw) -> None:
    everywhere = element(torch.float32, max=math.nan, min=math.nan, finite_max=math.nan, finite_min=math.nan)
    assert bool(random_tensor(everywhere, 0).isnan().all())


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (4, 5)])
@pytest.mark.parametrize("finite", [True, False])
def test_infinities_are_where_the_extrema_show_them(random_tensor: Draw, shape: tuple[int, ...], finite: bool) -> None:
    several = math.prod(shape) > 1
    known = {"finite_max": 4.0, "finite_min": 4.0} if finite and several else {}
    above = random_tensor(element(torch.float32, shape, max=math.inf, min=1.0 if several else math.inf, **known), 0)
    assert above.max().item() == math.inf
    assert int(above.isinf().sum()) == 1
    below = random_tensor(element(torch.float32, shape, max=0.5 if several else -math.inf, min=-math.inf), 0)
    assert below.min().item() == -math.inf
    if several:
        assert above.min().item() == 1.0
        assert below.max().item() == 0.5
    everything = random_tensor(element(torch.float16, shape, max=math.inf, min=math.inf), 0)
    assert bool((everything == math.inf).all())


def test_both_infinities_come_together_with_finite_values(random_tensor: Draw) -> None:
    both = element(torch.float32, max=math.inf, min=-math.inf, finite_max=2.0, finite_min=-3.0)
    values = random_tensor(both, 0)
    finite = values[values.isfinite()]
    assert (values.max().item(), values.min().item()) == (math.inf, -math.inf)
    assert finite.numel()
    assert finite.abs().max().item() <= 3.0


@pytest.mark.parametrize(
    ("statistics", "present"),
    [
        ({"max": True, "min": False}, {True, False}),
        ({"max": True, "min": True}, {True}),
        ({"max": False, "min": False}, {False}),
        ({}, {True, False}),
    ],
)
def test_bools_hold_what_any_and_all_say(random_tensor: Draw, statistics: dict[str, bool], present: set[bool]) -> None:
    assert set(random_tensor(element(torch.bool, **statistics), 0).tolist()) == present


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_the_statistics_of_complex_numbers_are_those_of_their_absolute_values(
    random_tensor: Draw, dtype: torch.dtype
) -> None:
    size = random_tensor(element(dtype, max=3.0, min=2.0), 0).abs()
    assert size.max().item() == pytest.approx(3.0, rel=1e-6)
    assert size.min().item() == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("dtype", FLOAT8_DTYPES, ids=str)
def test_float8_without_statistics_is_finite_and_varied(random_tensor: Draw, dtype: torch.dtype) -> None:
    values = random_tensor(element(dtype), 0).float()
    assert bool(values.isfinite().all())
    assert values.abs().max().item() <= 1.0
    assert values.unique().numel() > 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.uint64], ids=str)
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_tensors_keep_shape_and_dtype(random_tensor: Draw, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = random_tensor(element(dtype, shape), 0)
    assert (values.shape, values.dtype) == (shape, dtype)


@pytest.mark.parametrize("dtype", [*INTEGER_DTYPES, *FLOAT_DTYPES], ids=str)
def test_a_tensor_without_dimensions_is_its_recorded_value(random_tensor: Draw, dtype: torch.dtype) -> None:
    values = random_tensor(element(dtype, (), max=3, min=3, mean=3, norm=3), 0)
    assert values.shape == ()
    assert values.item() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_tensor_may_have_more_dimensions_than_arrays_have(dtype: torch.dtype) -> None:
    flat = element(dtype, (9,), min=-5, max=5, mean=0.0, norm=6.0)
    deep = element(dtype, (1,) * 70 + (9,), min=-5, max=5, mean=0.0, norm=6.0)
    assert same(random_tensors.random_tensor(deep, 3).view(-1), random_tensors.random_tensor(flat, 3))


@pytest.mark.parametrize("name", ["torch.float99", "torch_npu.HiFloat8Tensor", "torch.load", "Float99", "Int4", ""])
def test_an_unknown_dtype_is_a_skip_that_names_it(random_tensor: Draw, name: str) -> None:
    with pytest.raises(Skip) as caught:
        random_tensor(element(name), 0)
    assert caught.value.reason is SkipReason.UNKNOWN_DTYPE
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["torch.qint8", "torch.bits8", "torch.int4"])
def test_a_dtype_that_cannot_be_drawn_is_a_skip(random_tensor: Draw, name: str) -> None:
    with pytest.raises(Skip, match=name) as caught:
        random_tensor(element(name), 0)
    assert caught.value.reason is SkipReason.UNKNOWN_DTYPE
