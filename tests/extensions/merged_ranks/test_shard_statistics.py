"""Statistics of parts become those of the whole, which torch computes of the whole itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import NONFINITE_COUNTS
from msprobe_hooks.extensions.merged_ranks.shard_statistics import SHARDS, join, merge_ranks
from tests.support.dumps.dump_files import tensor
from tests.support.dumps.recorder import element

_FINITE = ("Max_except_inf_nan", "Min_except_inf_nan")


@st.composite
def _split(draw: st.DrawFn) -> tuple[torch.Tensor, list[torch.Tensor], int]:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    dim = draw(st.integers(0, len(shape) - 1))
    numbers = st.floats(-1e3, 1e3, width=32)
    if draw(st.booleans()):
        numbers |= st.sampled_from([math.inf, -math.inf, math.nan])
    size = math.prod(shape)
    whole = torch.tensor(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=torch.float32).reshape(shape)
    cuts = sorted(draw(st.lists(st.integers(0, shape[dim]), max_size=3)))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, shape[dim]], strict=True)]
    return whole, list(whole.split(sizes, dim)), dim


@settings(deadline=None, max_examples=150)
@given(_split())
def test_parts_along_any_dimension_have_the_statistics_of_the_whole(
    case: tuple[torch.Tensor, list[torch.Tensor], int],
) -> None:
    whole, parts, _ = case
    merged, expected = join([element(part) for part in parts], whole.shape), element(whole)
    scale = max((abs(x) for x in whole.flatten().tolist() if math.isfinite(x)), default=1.0)
    for key in ("shape", "dtype"):
        assert merged[key] == expected[key]
    for key in ("Max", "Min", *(key for key in _FINITE if key in expected)):
        assert merged[key] == pytest.approx(expected[key], nan_ok=True), key
    assert {key: merged.get(key) for key in NONFINITE_COUNTS} == {key: expected.get(key) for key in NONFINITE_COUNTS}
    assert merged["Mean"] == pytest.approx(expected["Mean"], abs=1e-5 * scale, nan_ok=True)
    assert merged["Norm"] == pytest.approx(expected["Norm"], rel=1e-5, abs=max(1e-5 * scale, 1e-20), nan_ok=True)


def test_bools_stay_bools() -> None:
    parts = [element(torch.tensor([True, True])), element(torch.tensor([False, True]))]
    merged = join(parts, (4,))
    assert (merged["Max"], merged["Min"], merged["Mean"], merged["Norm"]) == (True, False, None, None)


def test_what_one_part_lacks_the_whole_lacks() -> None:
    parts: list[Any] = [tensor(2, Mean=0.5, Norm=2.0), tensor(2, Mean=None, Norm=2.0)]
    merged = join(parts, (4,))
    assert (merged["Mean"], merged["Max"]) == (None, 1.0)


def test_copies_are_kept_once_and_other_values_with_what_each_rank_has() -> None:
    own, same = tensor(2, Mean=0.5, Norm=1.0, data_name="a.pt"), tensor(2, Mean=0.5 + 1e-9, Norm=1.0)
    other = tensor(2, Mean=0.4, Norm=1.0)
    assert merge_ranks([own, same]) == tensor(2, Mean=0.5, Norm=1.0)
    assert merge_ranks([own, other])[SHARDS] == [own, other]
