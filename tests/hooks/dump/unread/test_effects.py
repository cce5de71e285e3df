"""What the table says of calls that write and leave undefined is what torch does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.effects import (
    UNDEFINED_RESULTS,
    Effects,
    ValidRows,
    effects_of,
    effects_of_record,
    set_valid_rows,
    valid_rows_of,
)

# Arguments behind the first of methods that write to all of it.
OVERWRITING: dict[str, tuple[Any, ...]] = {
    "copy_": (torch.ones(6),), "fill_": (2.0,), "zero_": (), "normal_": (), "uniform_": (), "random_": (5,),
    "exponential_": (), "geometric_": (0.5,), "cauchy_": (), "log_normal_": (), "bernoulli_": (0.5,),
}  # fmt: skip
OF_FORM = {"zeros_like": (), "ones_like": (), "full_like": (3.0,), "rand_like": (), "randn_like": ()}


@pytest.mark.parametrize("api", OVERWRITING)
def test_what_a_method_overwrites_does_not_matter_to_its_result(api: str) -> None:
    assert effects_of(f"Tensor.{api}").is_unread("0")
    results = []
    for rubbish in (math.nan, 7.0):
        torch.manual_seed(0)
        results.append(getattr(torch.full((6,), rubbish), api)(*OVERWRITING[api]))
    assert torch.equal(*results)


@pytest.mark.parametrize("api", OF_FORM)
def test_what_is_asked_for_its_form_does_not_matter_to_the_result(api: str) -> None:
    assert effects_of(f"Torch.{api}").is_unread("input")
    results = []
    for rubbish in (math.nan, 7.0):
        torch.manual_seed(0)
        results.append(getattr(torch, api)(torch.full((6,), rubbish), *OF_FORM[api]))
    assert torch.equal(*results)


@pytest.mark.parametrize("api", ["add_", "masked_fill_", "index_put_", "clamp_", "copysign_", "lerp_", "__setitem__"])
def test_what_a_method_reads_is_not_said_to_be_unread(api: str) -> None:
    assert not effects_of(f"Tensor.{api}").is_unread("0")


@pytest.mark.parametrize("name", ["Torch.add.0.forward", "Aten.mul.out.3.forward", "torch.ops.aten.mul.out.0.forward"])
def test_a_tensor_for_the_result_is_unread(name: str) -> None:
    assert effects_of_record(name).is_unread("out")


@pytest.mark.parametrize(
    "name", ["torch.ops.mine.add.0.forward", "Module.out.Linear.forward.0", "Torch.add.0.backward", "no name"]
)
def test_of_other_libraries_modules_gradients_and_strange_names_nothing_is_known(name: str) -> None:
    assert not effects_of_record(name).is_unread("out")


def test_each_spelling_of_empty_is_undefined() -> None:
    for api in UNDEFINED_RESULTS:
        assert effects_of(f"Aten.{api}.memory_format").is_undefined("0")


def test_of_some_results_the_last_are_undefined() -> None:
    effects = Effects(defined=3)
    assert [effects.is_undefined(str(place)) for place in range(5)] == [False] * 3 + [True] * 2


def test_communication_has_a_table_of_its_own() -> None:
    assert effects_of("Distributed.scatter").is_unread("0")
    assert not effects_of("Tensor.scatter").is_unread("0")


def test_rows_of_a_user_are_known_until_they_are_taken_back() -> None:
    set_valid_rows({"npu_mine": ValidRows("sizes", holds="sizes")})
    try:
        found = valid_rows_of("npu_mine")
        assert found is not None
        assert found.count([2, 3]) == 5
    finally:
        set_valid_rows({})
    assert valid_rows_of("npu_mine") is None
