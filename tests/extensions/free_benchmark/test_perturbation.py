"""Calls that are run again with perturbed inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.free_benchmark.perturb import perturbed_call
from pytest_msprobe.extensions.free_benchmark.perturb_table import Perturbed


@pytest.fixture
def trial_of(default_policy: Policy) -> Any:
    def make(call: Call, device: Any = None) -> Trial:
        return Replay(call, ReplayConfig(device or SimDevice(), default_policy, TorchFramework())).trial

    return make


class Imprecise(SimDevice):
    """Loses the digits that bfloat16 does not hold."""

    name = "imprecise"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return func(*args, **kwargs).bfloat16().float()


class Unsteady(SimDevice):
    """Gives something else each time."""

    name = "unsteady"
    runs = 0

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.runs += 1
        return func(*args, **kwargs) + self.runs


def test_a_well_conditioned_call_hardly_changes(recorder: Any, trial_of: Any) -> None:
    found = perturbed_call(trial_of(recorder.Torch.tanh(torch.rand(50) + 1)), "forward", "bit_noise")
    assert (found.inconsistent, found.left_out) == ((), "")
    assert found.ratio is not None
    assert 1 < found.ratio < 1.000001


def with_inputs(trial: Trial, *inputs: torch.Tensor) -> Trial:
    """Give a trial's call these inputs in place of drawn ones."""
    for argument, given in zip(trial.subject.arguments.args, inputs, strict=True):
        argument.copy_(given)
    return trial


@pytest.mark.parametrize(("difference", "is_allowed"), [(2**-8, True), (2**-12, False)])
def test_a_difference_changes_by_what_the_flipped_bit_is_of_it(
    recorder: Any, trial_of: Any, difference: float, is_allowed: bool
) -> None:
    x, y = torch.ones(4), torch.full((4,), 1 - difference)
    trial = with_inputs(trial_of(recorder.Torch.sub(x, y)), x, y)
    found = perturbed_call(trial, "forward", "bit_noise")
    assert found.ratio == pytest.approx(1 + 2**-23 / difference, rel=1e-7)
    assert bool(found.inconsistent) is not is_allowed


def test_gradients_are_compared_as_the_results_are(recorder: Any, trial_of: Any) -> None:
    x = (torch.rand(6) + 1).requires_grad_()
    trial = trial_of(recorder.Torch.square(x))
    assert perturbed_call(trial, "backward", "no_change") == Perturbed("Torch.square", "no_change", "backward", 1.0)
    [output] = perturbed_call(trial, "backward", "change_value").inconsistent
    assert (output.index, output.dtype, output.shape) == (0, "torch.float32", (6,))
    arrives, inputs = trial.grad_outputs["0" if "0" in trial.grad_outputs else ""], trial.subject.arguments.args[0]
    swapped = inputs[[5, 1, 2, 3, 4, 0]]
    before, after = (2 * arrives * inputs).double(), (2 * arrives * swapped).double()
    quotient = before.abs() / after.abs()
    assert output.ratio == pytest.approx(float(torch.maximum(quotient, 1 / quotient).max()), rel=1e-6)


def test_narrow_inputs_are_widened_and_compared_by_the_threshold_of_their_dtype(recorder: Any, trial_of: Any) -> None:
    x, y = torch.ones(4).half(), torch.full((4,), 1 - 2**-10).half()
    trial = with_inputs(trial_of(recorder.Torch.mul(x, y)), y, y)
    found = perturbed_call(trial, "forward", "improve_precision")
    # (1 - 2^-10)² is 1 - 2^-9 + 2^-20, which float16 rounds to 1 - 2^-9.
    assert found == Perturbed(
        "Torch.mul", "improve_precision", "forward", pytest.approx((1 - 2**-10) ** 2 / (1 - 2**-9))
    )


def test_a_device_that_loses_digits_differs_from_the_cpu(recorder: Any, trial_of: Any) -> None:
    call = recorder.Torch.exp(torch.rand(50))
    assert perturbed_call(trial_of(call), "forward", "to_cpu").inconsistent == ()
    [output] = perturbed_call(trial_of(call, Imprecise()), "forward", "to_cpu").inconsistent
    assert str(output) == "the result changes by more than its dtype's precision"


def test_a_device_that_differs_from_itself_is_inconsistent_without_a_change(recorder: Any, trial_of: Any) -> None:
    call = recorder.Torch.tanh(torch.rand(5) + 1)
    assert perturbed_call(trial_of(call), "forward", "no_change") == Perturbed(
        "Torch.tanh", "no_change", "forward", 1.0
    )
    [output] = perturbed_call(trial_of(call, Unsteady()), "forward", "no_change").inconsistent
    assert output.threshold == 1.0
    assert str(output).startswith("the result changes by a ratio of 1.")


def test_a_device_that_differs_from_itself_is_said_to_do_so_without_the_perturbation(
    recorder: Any, trial_of: Any
) -> None:
    found = perturbed_call(trial_of(recorder.Torch.tanh(torch.rand(5) + 1), Unsteady()), "forward", "bit_noise")
    assert str(found).endswith("; a second run that is not perturbed differs as well")


def test_a_change_that_comes_once_is_not_blamed_on_the_perturbation(recorder: Any, trial_of: Any) -> None:
    class SecondWrong(SimDevice):
        name = "second_wrong"
        runs = 0

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            self.runs += 1
            return func(*args, **kwargs) + (self.runs == 2)

    found = perturbed_call(trial_of(recorder.Torch.tanh(torch.rand(5) + 1), SecondWrong()), "forward", "bit_noise")
    assert found.inconsistent
    assert str(found).endswith("; passed when run again")


@pytest.mark.parametrize("perturbation", ["no_change", "add_noise", "bit_noise"])
def test_random_calls_draw_the_same_numbers_again(recorder: Any, trial_of: Any, perturbation: str) -> None:
    trial = trial_of(recorder.Functional.dropout(torch.rand(64) + 1, p=0.5))
    assert perturbed_call(trial, "forward", perturbation).inconsistent == ()


def drawing_untold() -> Trial:
    arguments = Arguments((torch.ones(50),), {}, frozenset())
    trial = Trial(Subject("k", "f", torch._standard_gamma, torch._standard_gamma, arguments), SimDevice())
    assert trial.randomness is None
    _ = trial.target
    return trial


def test_calls_draw_the_same_numbers_again_also_where_nothing_says_that_they_draw() -> None:
    assert perturbed_call(drawing_untold(), "forward", "no_change").inconsistent == ()
    found = perturbed_call(drawing_untold(), "forward", "to_cpu")
    assert found.left_out == "draws random numbers, which would then be others"


@pytest.mark.parametrize("perturbation", ["to_cpu", "improve_precision"])
def test_where_other_numbers_would_be_drawn_nothing_is_compared(
    recorder: Any, trial_of: Any, perturbation: str
) -> None:
    trial = trial_of(recorder.Functional.dropout(torch.rand(64).half(), p=0.5))
    assert perturbed_call(trial, "forward", perturbation).left_out == "draws random numbers, which would then be others"


def test_inputs_that_cannot_be_perturbed_are_reported(recorder: Any, trial_of: Any) -> None:
    found = perturbed_call(trial_of(recorder.Torch.add(torch.arange(3), 1)), "forward", "add_noise")
    assert found.left_out == "no float tensor in the first positional tensor, list, tuple or dict"
    found = perturbed_call(trial_of(recorder.Torch.argmax(torch.rand(3))), "forward", "add_noise")
    assert found.left_out == "no result that could be compared"


def test_perturbed_inputs_that_the_call_rejects_are_reported(recorder: Any, trial_of: Any) -> None:
    trial = with_inputs(trial_of(recorder.Torch.bernoulli(torch.ones(3))), torch.ones(3))
    found = perturbed_call(trial, "forward", "bit_noise")
    assert found.left_out == "the call raises with perturbed inputs"


def test_a_call_in_place_is_perturbed_on_copies(recorder: Any, trial_of: Any) -> None:
    trial = trial_of(recorder.Tensor.add_(torch.rand(5) + 1, 1))
    before = trial.subject.arguments.args[0].clone()
    assert perturbed_call(trial, "forward", "change_value").inconsistent
    assert torch.equal(trial.subject.arguments.args[0], before)
