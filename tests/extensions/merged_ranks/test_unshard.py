"""Shards become wholes by the shapes of the other run; what is no whole is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.extensions.merged_ranks.shard_statistics import Axes
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import merge_shared
from msprobe_hooks.extensions.merged_ranks.unshard import Unmerged, make_whole
from tests.support.dumps.dump_files import Json, forward, value
from tests.support.dumps.ranks import dump
from tests.support.dumps.recorder import element

_NAME = "Torch.mul.0.forward"


def _run(*ranks: Json) -> Dump:
    body = ranks[0] if len(ranks) == 1 else merge_shared(dict(enumerate(ranks)), range(len(ranks)))
    return dump({_NAME: msgspec.Raw(msgspec.json.encode(body))})


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 0.3


def _outputs(target: Dump, golden: Dump, axes: tuple[Axes, Axes]) -> tuple[list[Any], list[Unmerged]]:
    ours, theirs, unmerged = make_whole(target, golden, axes)
    return [run.body(_NAME)["output"][0] for run in (ours, theirs)], unmerged


def _call(output: torch.Tensor, *args: Any) -> Json:
    return forward(*args, output=[element(output)])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_shards_are_joined_where_the_other_run_is_larger(dim: int) -> None:
    whole = _random(4, 4, 8)
    (ours, theirs), unmerged = _outputs(_run(*map(_call, whole.chunk(2, dim))), _run(_call(whole)), ((2,), (1,)))
    assert (ours["shape"], unmerged) == ([4, 4, 8], [])
    assert ours["Norm"] == pytest.approx(theirs["Norm"])
    assert ours["Mean"] == pytest.approx(theirs["Mean"])


def test_both_runs_may_be_split_in_other_numbers_of_parts() -> None:
    whole = _random(8, 4)
    quarters, halves = (_run(*map(_call, whole.chunk(parts, 0))) for parts in (4, 2))
    (ours, theirs), unmerged = _outputs(quarters, halves, ((4,), (2,)))
    assert (ours["shape"], theirs["shape"], unmerged) == ([8, 4], [8, 4], [])
    assert ours["Norm"] == pytest.approx(float(whole.norm()))
    assert theirs["Norm"] == pytest.approx(float(whole.norm()))


def test_shards_of_one_value_each_are_joined_too() -> None:
    whole = torch.ones(8)
    (ours, theirs), _ = _outputs(_run(*map(_call, whole.chunk(2))), _run(_call(whole)), ((2,), (1,)))
    assert ours == theirs | {"Norm": pytest.approx(8**0.5)}


def test_shards_may_have_other_sizes() -> None:
    whole = _random(7, 2)
    (ours, _), unmerged = _outputs(_run(*map(_call, whole.split([4, 3]))), _run(_call(whole)), ((2,), (1,)))
    assert (ours["shape"], unmerged) == ([7, 2], [])


def test_parts_of_a_sum_have_no_statistics_and_are_named() -> None:
    parts = _random(4, 4), _random(4, 4, seed=1)
    (ours, _), unmerged = _outputs(_run(*map(_call, parts)), _run(_call(parts[0] + parts[1])), ((2,), (1,)))
    assert (ours["Max"], ours["Norm"], ours["shape"]) == (None, None, [4, 4])
    assert unmerged == [Unmerged(_NAME, "output.0", "unreduced")]


def test_a_part_that_is_nearly_all_of_a_sum_is_no_copy() -> None:
    parts = _random(4, 4), torch.zeros(4, 4)
    _, unmerged = _outputs(_run(*map(_call, parts)), _run(_call(parts[0])), ((2,), (1,)))
    assert [value.reason for value in unmerged] == ["unreduced"]


def test_of_copies_that_are_not_equal_the_one_that_is_furthest_off_is_compared() -> None:
    right = _random(4, 4)
    (ours, _), unmerged = _outputs(_run(_call(right), _call(right * 1.01)), _run(_call(right)), ((2,), (1,)))
    assert ours["Norm"] == pytest.approx(float(right.norm()) * 1.01)
    assert unmerged == [Unmerged(_NAME, "output.0", "unequal")]


def test_sizes_among_the_arguments_are_those_of_the_whole() -> None:
    whole = _random(4, 8)
    ranks = [_call(part, value([4, 4]), value(1)) for part in whole.chunk(2, 1)]
    ours, theirs, _ = make_whole(_run(*ranks), _run(_call(whole, value([4, 8]), value(1))), ((2,), (1,)))
    assert ours.body(_NAME)["input_args"] == theirs.body(_NAME)["input_args"] == [value([4, 8]), value(1)]


def test_shapes_that_no_whole_explains_stay_different() -> None:
    ranks = [_call(_random(4, 5, seed=seed)) for seed in (0, 1)]
    (ours, theirs), _ = _outputs(_run(*ranks), _run(_call(_random(4, 8))), ((2,), (1,)))
    assert (ours["shape"], theirs["shape"]) == ([4, 5], [4, 8])
    assert "shards" not in ours


@pytest.mark.parametrize(
    "odd",
    [
        {"shards": 5},
        {"shards": [{"dtype": "x", "shape": [1]}]},
        {"Max": "word", "Norm": [1]},
        {"shape": None},
        {"shape": [-1]},
        {"Mean": 10**400},
        {"shape": [2, 2, 2]},
    ],
)
def test_elements_that_no_recorder_writes_are_no_traceback(odd: Json) -> None:
    strange, plain = forward(element(_random(4)) | odd), _call(_random(4), 3)
    for target, golden, axes in [
        (_run(strange, plain), _run(plain), ((2,), (1,))),
        (_run(plain, strange), _run(strange), ((2,), (1,))),
        (_run(plain, plain), _run(strange, plain), ((2,), (2,))),
    ]:
        ours, _, _ = make_whole(target, golden, axes)
        assert [*ours.records] == [_NAME]
        ours.body(_NAME)
