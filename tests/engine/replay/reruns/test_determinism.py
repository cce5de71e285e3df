"""Calls that run several times on a device, and what of their results is not the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.determinism import nondeterminism_reason, unequal_bits, unstable_outputs
from pytest_msprobe.engine.replay.rerun_differences import UnstableOutput
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from tests.support.replays.devices import Altered


class Counting(SimDevice):
    """Counts what runs on it."""

    def __init__(self) -> None:
        self.runs = 0

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.runs += 1
        return func(*args, **kwargs)


def trial_of(device: Any, function: Callable[..., Any], *args: Any, backward: bool = False) -> Trial:
    wanted = frozenset({"args.0"}) if backward else frozenset[str]()
    arrives = (lambda output: {"": torch.ones(output.shape)}) if backward else None
    return Trial(Subject("k", "f", function, function, Arguments(args, {}, wanted), arrives), device)


QUIET_NAN, OTHER_NAN = np.array([0x7FC00000, 0x7FC00001], dtype=np.uint32).view(np.float32)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=8))
def test_elements_are_unequal_where_their_bits_are(bits: list[tuple[int, int]]) -> None:
    a, b = np.array(bits, dtype=np.uint32).T.copy()
    found = unequal_bits(torch.from_numpy(a.view(np.float32)), torch.from_numpy(b.view(np.float32)))
    assert found.tolist() == (a != b).tolist()


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.complex128]
)
def test_every_dtype_has_bits(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    assert unequal_bits(x, x[[0, 1, 0]]).tolist() == [False, False, True]
    assert unequal_bits(x.conj(), x.conj().clone()).tolist() == [False] * 3


def test_the_same_nan_is_equal_and_signs_of_zero_are_not() -> None:
    first = torch.tensor([QUIET_NAN, QUIET_NAN, 0.0])
    assert unequal_bits(first, torch.tensor([QUIET_NAN, OTHER_NAN, -0.0])).tolist() == [False, True, True]


class Planned(SimDevice):
    """Adds to the first elements of each result what the plan says of the run: a list per run."""

    def __init__(self, *plan: list[float]) -> None:
        self._plan = list(plan)

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        result, change = func(*args, **kwargs), self._plan.pop(0)
        if change:
            result = result + torch.tensor([*change, *[0.0] * (result.numel() - len(change))])
        return result


def planned(*plan: list[float], size: int = 4) -> Trial:
    return trial_of(Planned(*plan), torch.relu, torch.zeros(size))


def test_a_call_that_is_the_same_in_every_run_runs_that_often_and_reports_nothing() -> None:
    device = Counting()
    trial = trial_of(device, torch.relu, torch.ones(3))
    assert unstable_outputs(trial, "forward", 5) == ()
    assert device.runs == 5


def test_what_differs_in_any_run_is_counted_once_with_the_largest_difference() -> None:
    found = unstable_outputs(planned([], [0.5], [], [0.25, 0.75]), "forward", 4)
    assert found == (UnstableOutput("output.0", runs=2, unequal=2, elements=4, largest=0.75),)
    assert found[0].share == 0.5


def test_the_judged_run_is_the_first_and_is_not_made_again() -> None:
    trial = planned([], [], [0.5])
    _ = trial.target
    assert unstable_outputs(trial, "forward", 2) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_in_one_run_only_differs_by_infinity(value: float) -> None:
    [output] = unstable_outputs(planned([], [value]), "forward", 2)
    assert output == UnstableOutput("output.0", runs=1, unequal=1, elements=4, largest=math.inf)


def test_a_shape_that_varies_is_wrong_everywhere() -> None:
    class Shrinking(Planned):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            return func(*args, **kwargs)[: 4 - len(self._plan.pop(0))]

    trial = trial_of(Shrinking([], [1.0]), torch.relu, torch.zeros(4))
    assert unstable_outputs(trial, "forward", 2) == (UnstableOutput("output.0", 1, 4, 4, math.inf),)


def test_a_call_in_place_gets_fresh_inputs_each_time() -> None:
    trial = trial_of(Counting(), torch.Tensor.add_, torch.ones(3), 1)
    assert unstable_outputs(trial, "forward", 3) == ()


def test_gradients_are_repeated_with_the_forward_run_that_they_need() -> None:
    device = Counting()
    trial = trial_of(device, torch.tanh, torch.ones(3), backward=True)
    assert unstable_outputs(trial, "backward", 3) == ()
    assert device.runs == 6


def binomial(device: Any) -> Trial:
    """Return the trial of a call that draws though no trait says so, as it is after its verdict."""
    trial = trial_of(device, torch.binomial, torch.full((50,), 10.0), torch.full((50,), 0.5))
    assert trial.randomness is None
    _ = trial.target
    return trial


def test_a_call_draws_the_same_numbers_also_where_nothing_says_that_it_draws() -> None:
    assert unstable_outputs(binomial(Counting()), "forward", 3) == ()
    unsteady = binomial(Planned([], [], [], [0.5]))
    assert unstable_outputs(unsteady, "forward", 3) == (UnstableOutput("output.0", 1, 1, 50, 0.5),)


@pytest.fixture
def dropout(recorder: Any, default_policy: Policy) -> Trial:
    call = recorder.Functional.dropout(torch.ones(64, requires_grad=True), p=0.5)
    return Replay(call, ReplayConfig(SimDevice(), default_policy, TorchFramework())).trial


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_healthy_device_draws_the_same_numbers_in_every_run(dropout: Trial, direction: Direction) -> None:
    assert dropout.randomness is not None
    assert unstable_outputs(dropout, direction, 3) == ()


def test_drawing_leaves_the_generator_of_the_process_alone(dropout: Trial) -> None:
    state = torch.get_rng_state()
    unstable_outputs(dropout, "forward", 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_random_calls_of_another_framework_are_not_repeated(dropout: Trial) -> None:
    assert nondeterminism_reason(dropout, "pytorch") == ""
    assert (
        nondeterminism_reason(dropout, "mindspore")
        == "mindspore draws numbers by a generator of its own, which is not seeded"
    )


def test_what_was_in_memory_is_not_repeated(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Torch.empty_like(torch.ones(3))
    trial = Replay(call, ReplayConfig(SimDevice(), default_policy, TorchFramework())).trial
    assert nondeterminism_reason(trial, "pytorch") == "returns whatever was in memory"


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_judged_call_with_dropout_inside_repeats_its_random_run(recorder: Any, direction: Direction) -> None:
    heads = [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]
    call = recorder.Functional.scaled_dot_product_attention(*heads, None, 0.3)
    replay = Replay(call, ReplayConfig(SimDevice(), Policy.load("default"), TorchFramework()))
    assert replay.judge(direction).outcome == "pass"
    assert unstable_outputs(replay.trial, direction, 3) == ()


def test_a_judged_call_that_returns_a_copy_of_what_it_wrote_repeats(recorder: Any) -> None:
    copied = Altered(lambda func, args, kwargs: func(*args, **kwargs).clone())
    replay = Replay(
        recorder.Tensor.add_(torch.randn(3, 4), 1.0), ReplayConfig(copied, Policy.load("default"), TorchFramework())
    )
    assert replay.forward().outcome == "pass"
    assert unstable_outputs(replay.trial, "forward", 3) == ()
