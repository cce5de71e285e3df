"""Large tensors: each element by its place alone, whatever is drawn next to it, and like what small ones are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.inputs import large_tensors
from pytest_msprobe.engine.replay.inputs.large_tensors import large_tensor, undrawn_tensor
from pytest_msprobe.engine.replay.inputs.philox import GROUP
from pytest_msprobe.engine.replay.inputs.random_tensors import random_tensor
from pytest_msprobe.engine.values.dtypes import dtype_named

COUNT = 70 * GROUP + 5

STATISTICS: dict[str, dict[str, Any]] = {
    "even": {"max": 3.0, "min": -2.0},
    "peaked": {"max": 4.0, "min": -4.5, "mean": 0.25, "norm": math.sqrt(COUNT * (0.25**2 + 1))},
    "peaked at an end": {"max": 6.0, "min": 0.0, "mean": 0.5, "norm": math.sqrt(COUNT * (0.5**2 + 1))},
    "NaN": {"max": math.nan, "min": math.nan, "finite_max": 2.0, "finite_min": -3.0},
    "infinite": {"max": math.inf, "min": -math.inf, "finite_max": 2.0, "finite_min": -3.0},
}


def element(kind: str, dtype: torch.dtype, shape: tuple[int, ...] = (COUNT,)) -> TensorElement:
    return TensorElement(type="torch.Tensor", dtype=str(dtype), shape=shape, **STATISTICS[kind])


def as_large(wanted: TensorElement, seed: int) -> torch.Tensor:
    return large_tensor(wanted, dtype_named(wanted.dtype), seed)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


@given(
    st.sampled_from([*STATISTICS]),
    st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]),
    st.lists(st.booleans(), min_size=71, max_size=71),
    st.integers(0, 2**63 - 1),
)
@settings(max_examples=50)
def test_what_is_drawn_of_a_tensor_is_what_stands_there_in_the_whole_one(
    kind: str, dtype: torch.dtype, groups: list[bool], seed: int
) -> None:
    wanted = element(kind, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_tensors, "LARGE", 1)
        undrawn = undrawn_tensor(wanted, seed)
    assert undrawn is not None
    undrawn.draw(np.array(groups))
    is_drawn = torch.tensor(groups).repeat_interleave(GROUP)[:COUNT]
    whole = as_large(wanted, seed)
    assert bits(undrawn.tensor[is_drawn]) == bits(whole[is_drawn])
    assert not undrawn.tensor[~is_drawn].any()


@pytest.mark.parametrize("kind", [*STATISTICS, "masked"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8, torch.int64, torch.bool, torch.complex64])
def test_values_do_not_depend_on_the_number_of_threads(kind: str, dtype: torch.dtype) -> None:
    masked = {"max": 3.0, "min": -1e4, "mean": -4e3, "norm": 1e4 * math.sqrt(0.4 * COUNT)}
    statistics = STATISTICS.get(kind, masked)
    wanted = TensorElement(type="torch.Tensor", dtype=str(dtype), shape=(COUNT,), **statistics)
    threads, drawn = torch.get_num_threads(), set()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            drawn.add(bits(as_large(wanted, 5)))
    finally:
        torch.set_num_threads(threads)
    assert len(drawn) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["even", "peaked", "peaked at an end"])
def test_values_are_distributed_as_those_of_small_tensors(kind: str, dtype: torch.dtype) -> None:
    wanted = element(kind, dtype)
    large, small = (draw(wanted, 7).double().sort().values.numpy() for draw in (as_large, random_tensor))
    # Of two samples of one distribution (Kolmogorov and Smirnov): more than this once in 10**6.
    critical = math.sqrt(math.log(2e6) / COUNT)
    places = np.concatenate((large, small))
    shares = [np.searchsorted(each, places, side="right") / COUNT for each in (large, small)]
    assert np.abs(shares[0] - shares[1]).max() < critical


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_mean_and_norm_are_the_recorded_ones(dtype: torch.dtype) -> None:
    values = as_large(element("peaked", dtype), 3).double()
    assert values.mean().item() == pytest.approx(0.25, abs=5 / math.sqrt(COUNT))
    assert values.norm().item() == pytest.approx(STATISTICS["peaked"]["norm"], rel=0.02)
    assert (values.min().item(), values.max().item()) == (-4.5, 4.0)


def test_values_outside_the_range_do_not_pile_up_at_its_ends() -> None:
    values = as_large(element("peaked at an end", torch.float32), 3)
    assert int((values == 0).sum()) == 1


@given(st.sampled_from(["NaN", "infinite"]), st.sampled_from([torch.float16, torch.float64]), st.integers(1, 3000))
def test_what_is_not_finite_stands_where_it_does_in_small_tensors(kind: str, dtype: torch.dtype, count: int) -> None:
    wanted = element(kind, dtype, (count,))
    large, small = as_large(wanted, 1), random_tensor(wanted, 1)
    assert torch.equal(large.isnan(), small.isnan())
    assert torch.equal(large.isinf() * large.sign(), small.isinf() * small.sign())


def test_integers_are_spread_evenly() -> None:
    wanted = TensorElement(type="torch.Tensor", dtype="torch.int8", shape=(COUNT,), max=127, min=-127)
    counts = torch.bincount(as_large(wanted, 2).long() + 127, minlength=255).double()
    expected = COUNT / 255
    # Chi-squared with 254 degrees of freedom: mean 254, standard deviation 22.5.
    assert ((counts - expected).square() / expected).sum().item() < 254 + 6 * 22.5


def test_neither_streams_nor_seeds_share_their_values() -> None:
    one, other = (as_large(element("even", torch.float32), seed) for seed in (1, 2))
    share = torch.stack((one, other)).corrcoef()[0, 1].abs().item()
    assert share < 6 / math.sqrt(COUNT)


def test_a_tensor_is_large_from_four_million_elements_on() -> None:
    below, from_there = (
        TensorElement(type="torch.Tensor", dtype="torch.bfloat16", shape=shape, max=1.0, min=-1.0)
        for shape in ((2**11, 2**11 - 1), (2**11, 2**11))
    )
    assert undrawn_tensor(below, 0) is None
    assert torch.equal(random_tensor(from_there, 0), as_large(from_there, 0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_groups_of_a_narrow_tensor_differ_from_each_other_and_from_those_of_another_seed(dtype: torch.dtype) -> None:
    groups = [bits(part) for seed in (0, 1) for part in as_large(element("even", dtype), seed)[:-5].split(GROUP)]
    assert len({*groups}) == len(groups) == 140


def test_values_of_a_narrow_tensor_are_as_even_as_its_statistics_say() -> None:
    values = as_large(element("even", torch.float16, (2**22,)), 3).double()
    counts = torch.histc(values, 50, -2.0, 3.0) / values.numel() * 50
    # A fiftieth of a million elements is known to 0.7 % (one standard error).
    assert (counts - 1).abs().max() < 0.05
