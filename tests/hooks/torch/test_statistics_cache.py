"""What was measured of tensors is remembered while they do not change, and shared by views of the same elements."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.torch.recorder import StatisticsCache
from msprobe_hooks.torch.statistics import measure


class Counting:
    def __init__(self):
        self.count = 0

    def __call__(self, tensor):
        self.count += 1
        return measure(tensor)


def test_an_unchanged_tensor_is_measured_once():
    counting = Counting()
    measured = StatisticsCache(counting)
    x = torch.ones(3)
    assert measured(x) is measured(x)
    assert counting.count == 1


@pytest.mark.parametrize("change", [lambda x: x.add_(1), lambda x: x[0].mul_(5), lambda x: x.detach().zero_()])
def test_a_changed_tensor_is_measured_again(change):
    measured = StatisticsCache(Counting())
    x = torch.ones(3)
    measured(x)
    change(x)
    assert measured(x).max == x.max().item()


def test_another_tensor_at_the_same_address_is_measured():
    counting = Counting()
    measured = StatisticsCache(counting)
    for value in range(50):
        assert measured(torch.full((3,), float(value))).max == value
    assert counting.count == 50


def test_a_tensor_whose_memory_was_handed_out_is_measured_each_time():
    measured = StatisticsCache(Counting())
    x = torch.ones(3)
    measured(x)
    measured.expose(x)
    x.numpy()[0] = 7.0
    assert measured(x).max == 7.0
    x.numpy()[0] = 9.0
    assert measured(x).max == 9.0


def test_tensors_of_inference_mode_are_measured_each_time():
    measured = StatisticsCache(Counting())
    with torch.inference_mode():
        x = torch.ones(3)
        measured(x)
        x.add_(1)
        assert measured(x).max == 2.0


X = torch.arange(4096.0).reshape(32, 128)

SAME_ELEMENTS = [
    lambda x: x.view(-1),
    lambda x: x.view(64, 64),
    lambda x: x.t(),
    lambda x: x.t().unsqueeze(1),
]


@pytest.mark.parametrize("view", SAME_ELEMENTS)
def test_a_view_of_all_elements_is_not_measured_again(view):
    counting = Counting()
    measured = StatisticsCache(counting)
    x = X.clone()
    of_base, of_view = measured(x), measured(view(x))
    assert counting.count == 1
    assert of_view is not of_base
    assert (of_view.max, of_view.norm) == (of_base.max, of_base.norm)


def test_views_of_one_part_are_measured_once_and_those_of_another_for_themselves():
    counting = Counting()
    measured = StatisticsCache(counting)
    left, right = X.split(64, 1)
    results = [measured(one) for one in (left, left.view(32, 8, 8).transpose(0, 1), right, right.t())]
    assert counting.count == 2
    assert [one.max for one in results] == [left.max(), left.max(), right.max(), right.max()]


def test_a_measure_that_depends_on_the_order_of_elements_is_taken_of_a_transposed_view():
    counting = Counting()
    measured = StatisticsCache(counting, is_ordered=True)
    x = X.clone()
    for one in (x, x.view(-1), x.t(), x.t()[None]):
        measured(one)
    assert counting.count == 2


@pytest.mark.parametrize("change", [lambda x: x.add_(1), lambda x: x.t().mul_(5), lambda x: x.detach().zero_()])
def test_a_view_of_a_changed_tensor_is_measured_again(change):
    measured = StatisticsCache(Counting())
    x = X.clone()
    measured(x.t()), measured(x)
    change(x)
    assert measured(x.view(-1)).max == x.max().item()


def test_elements_that_are_read_as_another_dtype_are_measured_as_such():
    measured = StatisticsCache(Counting())
    x = X.clone()
    assert measured(x).max == 4095.0
    assert measured(x.view(torch.int32)).max == x.view(torch.int32).max().item()


def test_a_view_that_turns_the_sign_is_measured_for_itself():
    measured = StatisticsCache(Counting())
    x = torch.complex(X, X + 1)
    assert measured(x.imag).max == 4096.0
    assert measured(x.conj().imag).max == -1.0


@pytest.mark.parametrize("tell", [StatisticsCache.expose, StatisticsCache.discard])
@pytest.mark.parametrize("tells_of_a_view", [False, True])
def test_a_view_of_memory_that_changed_unnoticed_is_measured_again(tell, tells_of_a_view):
    measured = StatisticsCache(Counting())
    x = X.clone()
    measured(x), measured(x.t()), measured(x[1:])
    tell(measured, x.view(-1) if tells_of_a_view else x)
    x.data.fill_(7.0)
    assert measured(x.t()).max == measured(x[1:]).max == measured(x).max == 7.0


@given(st.data())
def test_a_view_has_the_numbers_of_a_copy(data):
    measured = StatisticsCache(measure)
    x = X.reshape(2, 4, 8, 64).clone()
    for _ in range(4):
        order = data.draw(st.permutations(range(4)))
        start, step = data.draw(st.integers(0, 1)), data.draw(st.sampled_from([1, 1, 2]))
        view = x.permute(order)[start::step]
        found, want = measured(view), measure(view.clone())
        assert (found.max, found.min) == (want.max, want.min)
        assert found.mean == pytest.approx(want.mean)
        assert found.norm == pytest.approx(want.norm)
