"""Shards become wholes by the shapes of the other run; what is no whole is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import DumpError
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


_TWO_BY_TWO: tuple[Axes, Axes] = ((1, 2, 1, 2), (1, 1, 1, 1))


def _ranks(*outputs: torch.Tensor, axes: Axes = (1, 2, 1, 2), name: str = _NAME, given: Json | None = None) -> Dump:
    calls = [_call(output, *([] if given is None else [given])) for output in outputs]
    body = merge_shared(dict(enumerate(calls)), range(len(calls)), axes=axes)
    return dump({name: msgspec.Raw(msgspec.json.encode(body))})


def test_parts_of_a_sequence_and_of_a_tensor_are_joined_in_two_dimensions() -> None:
    whole = _random(8, 6)
    ranks = [part for half in whole.chunk(2, 0) for part in half.chunk(2, 1)]
    (ours, theirs), unmerged = _outputs(_ranks(*ranks), _run(_call(whole)), _TWO_BY_TWO)
    assert (ours["shape"], unmerged) == ([8, 6], [])
    assert ours["Norm"] == pytest.approx(theirs["Norm"])


def test_parts_of_a_sequence_are_joined_once_where_ranks_of_a_tensor_hold_copies() -> None:
    whole = _random(8, 6)
    first, second = whole.chunk(2, 0)
    (ours, theirs), unmerged = _outputs(_ranks(first, first, second, second), _run(_call(whole)), _TWO_BY_TWO)
    assert (ours["shape"], unmerged) == ([8, 6], [])
    assert ours["Norm"] == pytest.approx(theirs["Norm"])


def test_the_order_of_the_chunks_of_a_sequence_is_of_no_account() -> None:
    whole = _random(8, 6)
    chunks = whole.chunk(4)
    zigzag = torch.cat([chunks[0], chunks[3]]), torch.cat([chunks[1], chunks[2]])
    (ours, theirs), _ = _outputs(_ranks(*zigzag, axes=(1, 2, 1, 1)), _run(_call(whole)), ((1, 2, 1, 1), (1,) * 4))
    assert [ours[key] for key in ("Max", "Min")] == [theirs[key] for key in ("Max", "Min")]
    assert ours["Norm"] == pytest.approx(theirs["Norm"])


def _loss(name: str, golden: float, *ranks: float) -> tuple[Any, list[Unmerged]]:
    """Return a loss of ranks with 4 of 8 tokens each, and what could not be merged."""
    halves = _random(8, 3).chunk(2)
    calls = [_call(torch.tensor(own), element(half)) for own, half in zip(ranks, halves, strict=True)]
    body = merge_shared(dict(enumerate(calls)), range(2), axes=(1, 2, 1, 1))
    whole = _call(torch.tensor(golden), element(torch.cat(halves)))
    runs = [dump({name: msgspec.Raw(msgspec.json.encode(each))}) for each in (body, whole)]
    ours, _, unmerged = make_whole(runs[0], runs[1], ((1, 2, 1, 1), (1,) * 4))
    return ours.body(name)["output"][0]["Mean"], unmerged


def test_a_loss_of_ranks_is_the_sum_or_the_mean_of_theirs() -> None:
    name = "Functional.cross_entropy.0.forward"
    assert _loss(name, 3.0, 1.0, 2.0) == (3.0, [])
    assert _loss(name, 1.5, 1.0, 2.0) == (1.5, [])


def test_a_mean_by_tokens_lies_between_those_of_the_ranks_and_is_not_compared() -> None:
    name = "Functional.cross_entropy.0.forward"
    assert _loss(name, 1.7, 1.0, 2.0) == (None, [Unmerged(name, "output.0", "tokens")])


def test_a_loss_that_is_scaled_by_the_number_of_ranks_is_compared() -> None:
    assert _loss("Functional.cross_entropy.0.forward", 1.5, 2.0, 4.0) == (3.0, [])


def test_a_number_that_is_no_loss_over_tokens_may_be_anything() -> None:
    name = "Torch.add.0.forward"
    assert _loss(name, 9.0, 1.0, 2.0) == (None, [Unmerged(name, "output.0", "tokens")])


def test_a_sequence_that_the_ranks_cannot_share_is_an_error() -> None:
    ranks = _ranks(_random(2, 4), _random(2, 4, seed=1), axes=(1, 2, 1, 1), given=element(_random(2, 4)))
    with pytest.raises(DumpError, match=r"has \[2, 4\] on each rank and \[2, 9\] in the other run, which 2 ranks"):
        make_whole(ranks, _run(_call(_random(2, 9), element(_random(2, 9)))), ((1, 2, 1, 1), (1,) * 4))


def test_ranks_with_whole_sequences_of_their_own_are_an_error() -> None:
    ranks = _ranks(_random(2, 8), _random(2, 8, seed=1), axes=(1, 2, 1, 1))
    with pytest.raises(DumpError, match="no tensor of its ranks is a part of one of the other run"):
        make_whole(ranks, _run(_call(_random(2, 8))), ((1, 2, 1, 1), (1,) * 4))


def test_two_runs_that_share_sequences_alike_are_compared_as_they_are() -> None:
    runs = [_ranks(*_random(8, 4).chunk(2), axes=(1, 2, 1, 1)) for _ in range(2)]
    (ours, theirs), unmerged = _outputs(runs[0], runs[1], ((1, 2, 1, 1), (1, 2, 1, 1)))
    assert (ours, unmerged) == (theirs, [])
    assert ours["Norm"] == pytest.approx(float(_random(8, 4).norm()))


def test_places_that_each_rank_counts_from_0_are_not_compared() -> None:
    ranks = [torch.arange(4), torch.arange(4)]
    run = _ranks(*ranks, axes=(1, 2, 1, 1))
    (ours, _), unmerged = _outputs(run, _run(_call(torch.arange(8))), ((1, 2, 1, 1), (1,) * 4))
    assert (ours["Max"], unmerged) == (None, [Unmerged(_NAME, "output.0", "positions")])


def test_tokens_of_ranks_are_those_of_the_whole() -> None:
    whole = torch.tensor([5, 3, 9, 1, 7, 2, 8, 6])
    run = _ranks(*whole.chunk(2), axes=(1, 2, 1, 1))
    (ours, theirs), unmerged = _outputs(run, _run(_call(whole)), ((1, 2, 1, 1), (1,) * 4))
    assert (ours["Mean"], ours["Norm"], unmerged) == (theirs["Mean"], theirs["Norm"], [])


def _gradients(factor: float) -> tuple[Dump, Dump, str]:
    """Return a run of two ranks with parts of a sequence whose gradient is some times that of one process."""
    name, whole = "Torch.mul.0.backward", _random(8, 4)
    forward_calls = [_call(part, element(part)) for part in whole.chunk(2)]
    backward = [{"input": [element(part)], "output": [element(part * factor)]} for part in whole.chunk(2)]
    merged = [
        merge_shared(dict(enumerate(bodies)), range(2), axes=(1, 2, 1, 1)) for bodies in (forward_calls, backward)
    ]
    bodies = [_call(whole, element(whole)), {"input": [element(whole / factor)], "output": [element(whole)]}]
    ours, theirs = (
        dump(dict(zip((_NAME, name), (msgspec.Raw(msgspec.json.encode(body)) for body in each), strict=True)))
        for each in (merged, bodies)
    )
    return ours, theirs, name


@pytest.mark.parametrize(
    ("factor", "scale", "norm"), [(2, None, 1), (2, 2.0, 1), (2, 1.0, 2), (1, None, 1), (3, None, 3)]
)
def test_gradients_may_be_a_multiple_by_the_number_of_ranks(factor: int, scale: float | None, norm: int) -> None:
    ours, theirs, name = _gradients(factor)
    whole, golden, unmerged = make_whole(ours, theirs, ((1, 2, 1, 1), (1,) * 4), scale)
    output = whole.body(name)["output"][0]
    assert output["Norm"] == pytest.approx(norm * golden.body(name)["output"][0]["Norm"])
    assert [value.reason for value in unmerged] == (["scaled"] if (factor, scale) == (2, None) else [])
