"""An index is judged by what it selects, and only where it selects the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.selected_positions import Selection, accept_ties, gradient_of_selection

TIED = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 5.0]])


def accepted(api: str, args: tuple[Any, ...], target: Any, golden: Any, **kwargs: Any) -> Any:
    return accept_ties(op_info(api).selection, (args, kwargs), target, golden)


def test_another_argmax_of_equal_values_is_right() -> None:
    target, golden = [torch.tensor([2, 3])], [torch.tensor([1, 3])]
    assert torch.equal(accepted("argmax", (TIED, 1), target, golden)[0], golden[0])
    assert torch.equal(accepted("argmax", (TIED,), target, golden, dim=1)[0], golden[0])


def test_an_argmax_of_another_value_stays_wrong() -> None:
    target, golden = [torch.tensor([0, 3])], [torch.tensor([1, 3])]
    assert torch.equal(accepted("argmax", (TIED, 1), target, golden)[0], target[0])


def test_an_argmax_of_the_flattened_input_is_looked_up_there() -> None:
    x = torch.tensor([[1.0, 7.0], [7.0, 0.0]])
    assert accepted("argmax", (x,), [torch.tensor(2)], [torch.tensor(1)])[0] == 1
    assert accepted("argmax", (x,), [torch.tensor(3)], [torch.tensor(1)])[0] == 3


@pytest.mark.parametrize("place", [-1, 4, 99])
def test_an_index_out_of_range_stays_wrong(place: int) -> None:
    assert accepted("argmax", (TIED, 1), [torch.tensor([place, 3])], [torch.tensor([1, 3])])[0][0] == place


@pytest.mark.parametrize("api", ["max", "median", "kthvalue", "mode"])
def test_pairs_of_values_and_indices_keep_the_values(api: str) -> None:
    values = torch.tensor([3.0, 5.0])
    position = (TIED, 3, 1) if api == "kthvalue" else (TIED, 1)
    result = accepted(api, position, (values, torch.tensor([2, 3])), (values + 1, torch.tensor([1, 3])))
    assert isinstance(result, tuple)
    assert torch.equal(result[0], values)
    assert result[1].tolist() == [1, 3]


def test_a_sort_may_order_equal_values_at_will_but_use_each_once() -> None:
    golden = (torch.sort(TIED, dim=1).values, torch.tensor([[3, 0, 1, 2], [0, 1, 2, 3]]))
    swapped = (golden[0], torch.tensor([[3, 0, 2, 1], [2, 0, 1, 3]]))
    assert torch.equal(accepted("sort", (TIED, 1), swapped, golden)[1], golden[1])
    twice = (golden[0], torch.tensor([[3, 0, 1, 1], [0, 1, 2, 3]]))
    assert torch.equal(accepted("sort", (TIED, 1), twice, golden)[1], twice[1])


def test_nan_selects_any_nan() -> None:
    x = torch.tensor([float("nan"), 1.0, float("nan")])
    assert accepted("argmax", (x, 0), [torch.tensor(2)], [torch.tensor(0)])[0] == 0


def test_other_shapes_dtypes_and_apis_stay_as_they_are() -> None:
    golden = [torch.tensor([1, 3])]
    for target in ([torch.tensor([2])], [torch.tensor([2, 3], dtype=torch.int32)], [None]):
        assert accepted("argmax", (TIED, 1), target, golden)[0] is target[0]
    target = [torch.tensor([2, 3])]
    assert accepted("add", (TIED, 1), target, golden) is target


@pytest.mark.parametrize("keepdim", [False, True])
def test_the_gradient_of_a_selected_value_goes_where_the_target_selected(keepdim: bool) -> None:
    shape = (2, 1) if keepdim else (2,)
    values, arriving = torch.tensor([3.0, 5.0]).view(shape), torch.tensor([10.0, 20.0]).view(shape)
    target, golden = torch.tensor([2, 3]).view(shape), torch.tensor([1, 3]).view(shape)
    own = torch.tensor([[0.0, 10, 0, 0], [0, 0, 0, 20]])
    moved = torch.tensor([[0.0, 0, 10, 0], [0, 0, 0, 20]])

    def gradient(places: torch.Tensor) -> torch.Tensor:
        return gradient_of_selection(Selection(), ((TIED, 1), {}), (values, places), (values, golden), arriving, own)

    assert torch.equal(gradient(target), moved)
    assert torch.equal(gradient(golden), own)
    assert torch.equal(gradient(torch.tensor([0, 3]).view(shape)), own)


@pytest.mark.parametrize(("api", "options"), [("max", {}), ("min", {}), ("sort", {}), ("topk", {"k": 7})])
def test_a_device_that_selects_other_ties_raises_no_alarm(
    recorder: Any, check: Any, device_that: Any, api: str, options: dict[str, int]
) -> None:
    def select_the_last(func: Any, args: Any, kwargs: Any) -> Any:
        values, places = func(args[0].flip(1), *args[1:], **kwargs)
        return values, 3999 - places

    x = torch.rand(2, 4000).to(torch.bfloat16).requires_grad_()
    call = recorder.record("Torch", api, (x,), {"dim": 1, **options})
    result = check(call, device=device_that(select_the_last))
    assert (result.forward.verdict.outcome, result.backward.verdict.outcome) == ("pass", "pass")


def test_a_device_that_selects_wrong_places_fails_both_ways(recorder: Any, check: Any, device_that: Any) -> None:
    def select_the_neighbour(func: Any, args: Any, kwargs: Any) -> Any:
        places = func(*args, **kwargs).indices
        return args[0].gather(1, (places + 1) % 40), (places + 1) % 40

    call = recorder.Torch.topk(torch.rand(2, 40).requires_grad_(), 5, 1)
    result = check(call, device=device_that(select_the_neighbour))
    assert (result.forward.verdict.outcome, result.backward.verdict.outcome) == ("fail", "fail")
