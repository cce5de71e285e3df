"""What the CPU as a target computes with without a copy, and what that changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord, TensorElement
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.trials import zero_copy_inputs
from pytest_msprobe.engine.replay.trials.memory_budget import needed_in_blocks, recorded_bytes
from pytest_msprobe.engine.replay.trials.trial import Trial

F = torch.nn.functional
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "Functional.linear": (F.linear, [(5, 7), (9, 7), (9,)]),
    "Torch.bmm": (torch.bmm, [(3, 5, 7), (3, 7, 4)]),
    "Tensor.__add__": (torch.Tensor.__add__, [(5, 7), (7,)]),
    "Torch.mul": (torch.mul, [(5, 7), (5, 7)]),
    "Torch.exp": (torch.exp, [(5, 7)]),
    "Functional.silu": (F.silu, [(5, 7)]),
    "Functional.relu": (F.relu, [(5, 7)]),
    "Tensor.float": (torch.Tensor.float, [(5, 7)]),
    "Tensor.contiguous": (torch.Tensor.contiguous, [(5, 7)]),
    "Functional.log_softmax": (F.log_softmax, [(5, 7)]),
}


class OwnDevice(CpuDevice):
    """A device that is made of the CPU."""


@pytest.fixture(scope="module", autouse=True)
def large_from_twenty_elements_on() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zero_copy_inputs, "LARGE", 20)
        yield


def trial_of(name: str, dtype: torch.dtype, device: CpuDevice, seed: int = 0, **kwargs: Any) -> Trial:
    function, shapes = CALLS[name]
    generator = torch.Generator().manual_seed(seed)
    args = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    if name == "Functional.log_softmax":
        kwargs = {"dim": -1}
    given = Arguments(args, kwargs, frozenset(f"args.{i}" for i in range(len(shapes))))
    shape = function(*(arg.clone() for arg in args), **kwargs).shape
    arriving = torch.randn(shape, generator=generator).to(dtype)
    return Trial(
        Subject(f"{name}.0", name.partition(".")[2], function, function, given, lambda _: {"": arriving}), device
    )


def leaves(trial: Trial) -> list[torch.Tensor]:
    return list(trial.target.leaves.values())


@given(st.sampled_from(sorted(CALLS)), st.sampled_from((torch.bfloat16, torch.float32)), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_inputs_and_arriving_gradients_stay_and_results_are_those_of_copies(
    name: str, dtype: torch.dtype, seed: int
) -> None:
    shared, copied = (trial_of(name, dtype, device, seed) for device in (CpuDevice(), OwnDevice()))
    drawn = dict(copied.subject.arguments.tensors())
    assert {leaf.data_ptr() for leaf in leaves(shared)} & {
        tensor.data_ptr() for _, tensor in shared.subject.arguments.tensors()
    }
    assert torch.equal(shared.target.output, copied.target.output)
    for path, gradient in copied.target_gradients.items():
        assert torch.equal(shared.target_gradients[path], gradient)
    for path, tensor in shared.subject.arguments.tensors():
        assert torch.equal(tensor, drawn[path])
        assert not tensor.requires_grad
    assert torch.equal(shared.grad_outputs[""], copied.grad_outputs[""])


@pytest.mark.parametrize("name", CALLS)
def test_a_large_result_does_not_stay_while_gradients_are_judged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(name, torch.float32, CpuDevice())
    monkeypatch.setattr("pytest_msprobe.engine.replay.trials.trial.LARGE", 20)
    shape = trial.target.output.shape
    assert trial.target_gradients
    assert trial.target.output.is_meta
    assert trial.target.output.shape == shape


@pytest.mark.parametrize("name", CALLS)
def test_a_small_result_stays(name: str) -> None:
    trial = trial_of(name, torch.float32, CpuDevice())
    assert trial.target_gradients
    assert not trial.target.output.is_meta


def test_large_inputs_are_shared_and_small_ones_copied() -> None:
    trial = trial_of("Functional.linear", torch.float32, CpuDevice())
    places = [tensor.data_ptr() for _, tensor in trial.subject.arguments.tensors()]
    found = [leaf.data_ptr() for leaf in leaves(trial)]
    assert [ours == theirs for ours, theirs in zip(found, places, strict=True)] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "device", "kwargs"),
    [
        ("Functional.linear", OwnDevice(), {}),
        ("Functional.relu", CpuDevice(), {"inplace": True}),
    ],
    ids=["another device", "a call that writes to its argument"],
)
def test_others_get_copies(name: str, device: CpuDevice, kwargs: dict[str, Any]) -> None:
    trial = trial_of(name, torch.float32, device, **kwargs)
    drawn = {tensor.data_ptr() for _, tensor in trial.subject.arguments.tensors()}
    assert not drawn & {leaf.data_ptr() for leaf in leaves(trial)}


def test_what_is_not_an_operation_of_torch_gets_copies() -> None:
    weight = torch.ones(5, 7)

    def exp(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    arguments = Arguments((weight,), {}, frozenset())
    trial = Trial(Subject("Own.exp.0", "exp", exp, exp, arguments), CpuDevice())
    assert trial.target.output.sum() == 70
    assert torch.equal(weight, torch.ones(5, 7))


def test_what_is_shared_is_asked_for_once() -> None:
    large, small = (TensorElement("torch.Tensor", "torch.bfloat16", shape) for shape in ((2048, 2048), (8, 2048)))
    call = Call(
        parse_api_name("Functional.linear.0.forward"),
        ForwardRecord("Functional.linear.0.forward", [small, large], {}, [small], {}),
        BackwardRecord("Functional.linear.0.backward", [small], [small, large]),
        Path("none"),
    )
    twice = 2 * recorded_bytes(call)
    assert needed_in_blocks(call, 100, CpuDevice()) == twice + 100 - 2 * 2048 * 2048 * 2
    assert needed_in_blocks(call, 100, OwnDevice()) == twice + 100


def test_running_statistics_are_not_written_to_where_they_were_drawn() -> None:
    x, mean, variance = torch.randn(4, 30), torch.randn(30), torch.rand(30)
    arguments = Arguments((x, mean.clone(), variance.clone()), {"training": True}, frozenset({"args.0"}))
    arriving = lambda _: {"": torch.ones(4, 30)}  # noqa: E731
    subject = Subject("Functional.batch_norm.0", "batch_norm", F.batch_norm, F.batch_norm, arguments, arriving)
    changed = Trial(subject, CpuDevice()).target.changed
    assert not torch.equal(changed["args.1"], mean)
    assert torch.equal(arguments.args[1], mean)
    assert torch.equal(arguments.args[2], variance)
