"""Whatever was drawn within the recorded ranges, torch accepts the mended arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.calls.arguments import constrain


def mended(api: str, *args: Any, seed: int = 0, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return constrain(api, args, kwargs, seed)


def wild(*shape: int, dtype: torch.dtype = torch.int64, low: int = -1000, high: int = 1000) -> torch.Tensor:
    """Indices as a dump of other shapes, or rounded statistics, might lead to."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def mask(*shape: int) -> torch.Tensor:
    return floats(*shape) > 0


@pytest.mark.parametrize(
    ("api", "function", "args", "kwargs"),
    [
        ("embedding", F.embedding, (wild(3, 4), floats(10, 6)), {}),
        ("embedding", F.embedding, (), {"input": wild(3, 4), "weight": floats(10, 6)}),
        ("embedding.default", torch.ops.aten.embedding.default, (floats(10, 6), wild(3, 4)), {}),
        ("embedding", torch.embedding, (floats(10, 6), wild(3, 4)), {}),
        ("embedding_bag", F.embedding_bag, (wild(12), floats(10, 6), wild(4)), {}),
        ("embedding_bag", F.embedding_bag, (wild(12), floats(10, 6), wild(4)), {"include_last_offset": True}),
        ("embedding_bag", torch.embedding_bag, (floats(10, 6), wild(12), wild(4)), {}),
        ("gather", torch.gather, (floats(3, 5), 1, wild(3, 2)), {}),
        ("gather", torch.gather, (floats(3, 5),), {"dim": -1, "index": wild(3, 2)}),
        ("gather.default", torch.ops.aten.gather.default, (floats(3, 5), 0, wild(2, 5)), {}),
        ("index_select", torch.index_select, (floats(3, 5), 1, wild(7, dtype=torch.int32)), {}),
        ("take_along_dim", torch.take_along_dim, (floats(3, 5), wild(3, 2), 1), {}),
        ("take_along_dim", torch.take_along_dim, (floats(3, 5), wild(4)), {}),
        ("take", torch.take, (floats(3, 5), wild(4)), {}),
        ("put_", torch.Tensor.put_, (floats(3, 5), wild(4), floats(4)), {}),
        ("scatter", torch.scatter, (floats(3, 5), 1, wild(3, 4), floats(3, 4)), {}),
        ("scatter_", torch.Tensor.scatter_, (floats(3, 5), 0, wild(2, 5), 1.0), {}),
        ("scatter_add", torch.scatter_add, (floats(3, 5), 0, wild(6, 5), floats(6, 5)), {}),
        ("scatter_reduce", torch.scatter_reduce, (floats(3, 5), 0, wild(6, 5), floats(6, 5)), {"reduce": "sum"}),
        ("index_add", torch.index_add, (floats(3, 5), 0, wild(6), floats(6, 5)), {}),
        ("index_copy", torch.index_copy, (floats(3, 5), 0, wild(2), floats(2, 5)), {}),
        ("index_fill", torch.index_fill, (floats(3, 5), 1, wild(2), 0.5), {}),
        ("index_put", torch.index_put, (floats(3, 5), [wild(4), wild(4)], floats(4)), {}),
        ("index_put_.default", torch.ops.aten.index_put_.default, (floats(3, 5), [None, wild(4)], floats(3, 4)), {}),
        ("index.Tensor", torch.ops.aten.index.Tensor, (floats(3, 5), [wild(4), wild(4)]), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5), wild(4)), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5), (wild(4), wild(4))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5), (None, wild(4), None, wild(4))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5, 7), (..., wild(4))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5, 7), (slice(1, None), 0, wild(4))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5, 7), (wild(2), ..., wild(2))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(3, 5, 7), (mask(3, 5), wild(3))), {}),
        ("__getitem__", torch.Tensor.__getitem__, (floats(9, 5), (mask(9), wild(4))), {}),
        ("__setitem__", torch.Tensor.__setitem__, (floats(9, 5), mask(9), floats(3, 5)), {}),
        ("__setitem__", torch.Tensor.__setitem__, (floats(3, 5), mask(3, 5), floats(11)), {}),
        ("__setitem__", torch.Tensor.__setitem__, (floats(3, 5), (wild(2), slice(None)), floats(2, 5)), {}),
        ("index_put_", torch.Tensor.index_put_, (floats(3, 5), (mask(3, 5),), floats(6)), {}),
        ("cross_entropy", F.cross_entropy, (floats(6, 5), wild(6)), {}),
        ("cross_entropy", F.cross_entropy, (floats(2, 5, 3), wild(2, 3)), {"reduction": "none"}),
        ("cross_entropy", F.cross_entropy, (floats(5), wild()), {}),
        ("nll_loss", F.nll_loss, (floats(6, 5), wild(6), None, None, 7), {}),
        ("nll_loss_forward.default", torch.ops.aten.nll_loss_forward, (floats(6, 5), wild(6), None, 1, -100), {}),
        ("multi_margin_loss", F.multi_margin_loss, (floats(6, 5), wild(6)), {}),
        ("one_hot", F.one_hot, (wild(6), 5), {}),
        ("bincount", torch.bincount, (wild(6),), {}),
        ("masked_scatter", torch.masked_scatter, (floats(3, 5), mask(3, 5), floats(2)), {}),
        ("masked_scatter", torch.masked_scatter, (floats(3, 5), mask(5), floats(5)), {}),
        ("multinomial", torch.multinomial, (floats(3, 5), 2), {}),
        ("bernoulli", torch.bernoulli, (floats(3, 5) * 3,), {}),
        ("poisson", torch.poisson, (floats(3, 5),), {}),
        ("repeat_interleave", torch.repeat_interleave, (floats(3, 5), wild(3), 0), {"output_size": 8}),
        ("linalg.cholesky", torch.linalg.cholesky, (floats(4, 4),), {}),
        ("linalg.cholesky", torch.linalg.cholesky, (floats(2, 4, 4),), {}),
        ("linalg.cholesky", torch.linalg.cholesky, (floats(4, 4).to(torch.complex64),), {}),
        ("logdet", torch.logdet, (floats(4, 4),), {}),
        ("linalg.inv", torch.linalg.inv, (torch.zeros(4, 4) + 1,), {}),
        ("linalg.solve", torch.linalg.solve, (torch.ones(4, 4), floats(4, 2)), {}),
        ("max_unpool1d", F.max_unpool1d, (floats(2, 3, 4), wild(2, 3, 4), 2), {}),
        ("max_unpool2d", F.max_unpool2d, (floats(2, 3, 4, 4), wild(2, 3, 4, 4), 2), {}),
        ("max_unpool3d", F.max_unpool3d, (floats(1, 2, 3, 3, 3), wild(1, 2, 3, 3, 3), 2), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_torch_accepts_the_mended_arguments(
    api: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    cloned = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    new_args, new_kwargs = mended(api, *cloned[0], **cloned[1])
    function(*new_args, **new_kwargs)


def test_arguments_that_are_right_stay_as_they_are() -> None:
    index, table = torch.tensor([3, 0, 9]), floats(10, 2)
    args, _ = mended("embedding", index.clone(), table)
    assert torch.equal(args[0], index)
    target = torch.tensor([4, -100, 0])
    assert torch.equal(mended("cross_entropy", floats(3, 5), target.clone())[0][1], target)
    assert mended("relu", index)[0][0] is index


def test_negative_positions_that_count_from_the_end_stay() -> None:
    assert mended("__getitem__", floats(3, 5), torch.tensor([-1, -3, 2]))[0][1].tolist() == [-1, -3, 2]


@pytest.mark.parametrize("given_by", ["keyword", "position"])
def test_ignored_classes_stay_ignored_all_of_them_where_that_was_recorded(given_by: str) -> None:
    options = {"ignore_index": 7} if given_by == "keyword" else {}
    rest = () if given_by == "keyword" else (None, None, 7)
    args, _ = mended("cross_entropy", floats(4, 5), torch.tensor([7, 8, 2, -100]), *rest, **options)
    assert args[1][0] == 7
    assert bool(((args[1][1:] >= 0) & (args[1][1:] < 5)).all())
    everywhere, _ = mended("cross_entropy", floats(2, 5), torch.tensor([7, 7]), *rest, **options)
    assert everywhere[1].tolist() == [7, 7]


@pytest.mark.parametrize("api", ["__floordiv__", "remainder", "fmod_", "div", "__imod__", "__rfloordiv__"])
def test_whole_divisors_are_not_drawn_as_zero_between_their_ends(api: str) -> None:
    divisor = torch.tensor([-2, 0, 0, 0, 1, 0, 0, 0, 2])
    _ = mended(api, divisor, 7) if api.startswith("__r") else mended(api, wild(9), divisor)
    assert 0 not in divisor.tolist()
    assert set(divisor.tolist()) == {-2, -1, 1, 2}


def test_a_divisor_that_was_recorded_as_zero_stays_zero() -> None:
    args, _ = mended("remainder", wild(3), torch.tensor([0, 0, 5]))
    assert args[1].tolist() == [0, 0, 5]


@given(st.integers(0, 2**40), st.integers(1, 6), st.integers(1, 6))
def test_places_that_are_written_to_are_distinct(seed: int, rows: int, columns: int) -> None:
    """Which of two writers wins is not defined."""
    count = min(rows, 3)
    scattered, _ = mended("scatter", floats(rows, columns), 0, wild(count, columns), floats(count, columns), seed=seed)
    assert all(len(set(column)) == count for column in scattered[2].T.tolist())
    copied, _ = mended("index_copy", floats(rows, columns), 0, wild(count), floats(count, columns), seed=seed)
    assert len(set(copied[2].tolist())) == count
    several = min(rows * columns, 5)
    for api, index in (("__setitem__", (wild(several), wild(several))), ("index_put_", [wild(several), wild(several)])):
        stored, _ = mended(api, floats(rows, columns), index, floats(several), seed=seed)
        assert len(set(zip(*(part.tolist() for part in stored[1]), strict=True))) == several
    flat, _ = mended("put_", floats(rows, columns), wild(several), floats(several), seed=seed)
    assert len(set(flat[1].tolist())) == several


def test_places_that_are_added_to_may_repeat() -> None:
    index = torch.tensor([1, 1, 1])
    assert torch.equal(mended("index_put_", floats(3), [index.clone()], floats(3), True)[0][1][0], index)
    assert torch.equal(mended("scatter_add", floats(3), 0, index.clone(), floats(3))[0][2], index)


def test_a_mask_selects_as_many_places_as_there_are_values() -> None:
    args, _ = mended("__setitem__", floats(9, 5), mask(9), floats(4, 5))
    assert int(args[1].sum()) == 4
    broadcast, _ = mended("__setitem__", floats(9, 5), mask(9), floats(1, 5))
    assert torch.equal(broadcast[1], mask(9))


def test_boundaries_are_sorted() -> None:
    bounds, _ = mended("searchsorted", floats(3, 8), floats(3, 2))
    assert bool((bounds[0].diff(dim=-1) >= 0).all())
    _, named = mended("bucketize", floats(4), boundaries=floats(8))
    assert bool((named["boundaries"].diff() >= 0).all())


def test_offsets_of_bags_start_at_zero_and_rise() -> None:
    args, _ = mended("embedding_bag", wild(12), floats(10, 6), wild(4))
    assert args[2][0] == 0
    assert bool((args[2].diff() >= 0).all())
    assert args[2][-1] <= 12


@pytest.mark.parametrize(("blank", "as_keyword"), [(0, True), (0, False), (3, True), (4, False)])
def test_ctc_targets_are_no_blanks_and_their_lengths_add_up(blank: int, as_keyword: bool) -> None:
    scores, targets = floats(9, 2, 5), wild(6)
    lengths = (torch.tensor([9, 9]), wild(2))
    rest, options = ((), {"blank": blank}) if as_keyword else ((blank,), {})
    args, _ = mended("ctc_loss", scores, targets, *lengths, *rest, **options)
    assert blank not in args[1].tolist()
    assert int(args[3].sum()) == 6
    assert math.isfinite(F.ctc_loss(*args, **options).item())


@pytest.mark.parametrize(("length", "batch", "steps"), [(9, 3, 4), (7, 3, 4), (4, 1, 4), (12, 3, 4), (30, 8, 6)])
def test_a_packed_sequence_fits_its_state(length: int, batch: int, steps: int) -> None:
    state = [torch.zeros(1, batch, 4), torch.zeros(1, batch, 4)]
    weights = [floats(16, 3), floats(16, 4), floats(16), floats(16)]
    args, _ = mended("lstm", floats(length, 3), wild(steps), state, weights, True, 1, 0.0, True, False)
    sizes = args[1].tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sum(sizes)) == (batch, length)
    torch._VF.lstm(*args)


def test_unpooled_values_do_not_meet() -> None:
    for spatial, shape in ((1, (2, 3, 4)), (2, (2, 3, 4, 4)), (3, (1, 2, 3, 3, 3))):
        args, _ = mended(f"max_unpool{spatial}d", floats(*shape), wild(*shape), 2)
        planes = args[1].flatten(-spatial).reshape(-1, math.prod(shape[-spatial:]))
        assert all(len(set(plane)) == len(plane) for plane in planes.tolist())


def test_matrices_to_invert_are_well_conditioned() -> None:
    for api, position in (("linalg.inv", 0), ("linalg.solve_triangular", 0), ("cholesky_solve", 1)):
        args = [floats(30, 30), floats(30, 30, seed=1)]
        new, _ = mended(api, *args)
        assert torch.linalg.cond(new[position]).item() < 100


@given(st.integers(0, 2**62))
def test_mending_depends_on_the_seed_alone(seed: int) -> None:
    first, second = (mended("index_copy", floats(9, 2), 0, wild(5), floats(5, 2), seed=seed)[0][2] for _ in range(2))
    assert torch.equal(first, second)
