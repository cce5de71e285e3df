"""Steps that are computed twice: the training keeps its bits, and what differs is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import msprobe_hooks
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.errors import ConfigError, DifferingStepError
from msprobe_hooks.extensions.repeated_steps.step_repeat import StepRepeat
from msprobe_hooks.torch.no_dispatch import NoDispatch
from tests.support.dumps.bit_flips import FlippedBit

Train = Callable[..., StepRepeat | None]


class Net(nn.Module):
    """Draws numbers of each kind, updates buffers in place and has a layer that is computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        hidden = F.dropout(F.relu(self.norm(self.conv(x)), inplace=True), 0.2) * random.random() * np.random.rand()
        pooled = hidden.mean((2, 3))
        return torch.utils.checkpoint.checkpoint(self.head, pooled, use_reentrant=False)


def train(
    folder: Path, steps: int = 4, *, watch: bool = True, **options: Any
) -> tuple[list[Tensor], StepRepeat | None]:
    """Return the state of a model after a training with two micro batches a step, and what watched it."""
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    replay = msprobe_hooks.replay_step(model, every=1, folder=folder, micro_batches=2) if watch else None
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            x, y = torch.randn(4, 1, 6, 6), torch.randint(3, (4,))

            def forward_backward(x: Tensor = x, y: Tensor = y) -> Tensor:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss.detach()

            losses.append(forward_backward() if replay is None else replay(forward_backward))
        optimizer.step()
    return [*losses, *model.state_dict().values(), torch.rand(1), torch.tensor(random.random())], replay


def step_of(loss: Callable[[], Tensor], model: nn.Module, folder: Path, steps: int = 3, **options: Any) -> StepRepeat:
    """Return what watched a few steps of a function."""
    replay = msprobe_hooks.replay_step(model, **{"every": 1, "folder": folder, **options})
    for _ in range(steps):
        model.zero_grad()
        replay(loss)
    return replay


def mean_of_squares(model: nn.Module) -> Callable[[], Tensor]:
    x = torch.arange(12.0).view(3, 4)

    def loss() -> Tensor:
        found: Tensor = model(x).square().mean()
        found.backward()
        return found.detach()

    return loss


def test_a_training_keeps_its_bits(tmp_path: Path) -> None:
    plain, _ = train(tmp_path, watch=False)
    watched, replay = train(tmp_path)
    assert replay is not None
    assert (replay.report.watched, replay.report.differences) == (2, [])
    assert replay.report.calls > 30
    assert all(map(torch.equal, plain, watched))


@pytest.mark.parametrize(("number", "odd"), [(1, 1), (2, 2)])
def test_a_flipped_bit_is_named_and_does_not_reach_the_training(tmp_path: Path, number: int, odd: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    loss = mean_of_squares(model)
    right = loss()
    gradient = model[0].weight.grad
    with FlippedBit("tanh", 2 + number) as card:
        replay = step_of(loss, model, tmp_path)
    assert card.calls > 5
    (found,) = replay.report.differences
    assert (found.kind, found.step, found.odd_pass) == ("wrong", 2, odd)
    assert found.call is not None
    assert (found.call.operator, found.call.module, found.call.is_backward) == ("aten.tanh.default", "1", False)
    assert found.call.source.startswith(__file__)
    assert (found.call.repetitions, found.call.differing) == (10, 0)
    assert torch.equal(model[0].weight.grad, gradient)
    assert right.item() == loss().item()


def test_a_wrong_gradient_is_named_by_the_module_of_its_forward_call(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with FlippedBit("tanh_backward", 3):
        replay = step_of(mean_of_squares(model), model, tmp_path)
    (found,) = replay.report.differences
    assert found.call is not None
    assert (found.call.operator, found.call.module, found.call.is_backward) == ("aten.tanh_backward.default", "1", True)
    assert found.values == ["gradient of 0.weight", "gradient of 0.bias"]


def test_a_fault_that_is_masked_is_found(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    x = torch.ones(2, 4)

    def loss() -> Tensor:
        masked = torch.tanh(x)[:, 1:].sum()
        found = model(x).sum() + masked
        found.backward()
        return found.detach()

    with FlippedBit("tanh", 3):
        replay = step_of(loss, model, tmp_path)
    (found,) = replay.report.differences
    assert (found.kind, found.values) == ("wrong", [])
    assert "result, gradients and buffers are equal" in found.reason


def test_a_fault_of_the_third_pass_does_not_reach_the_training(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    # Its first element is 1 whatever the lowest bit before: the first two passes agree in what they return.
    nn.init.constant_(model[0].bias, 40.0)
    loss = mean_of_squares(model)
    loss()
    gradient = model[0].weight.grad
    with FlippedBit("addmm", 3, bit=0), FlippedBit("tanh", 5):
        replay = step_of(loss, model, tmp_path)
    assert next(each.odd_pass for each in replay.report.differences) == 1
    assert torch.equal(model[0].weight.grad, gradient)


def test_the_call_is_recorded_and_the_report_is_json(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with FlippedBit("tanh", 3):
        replay = step_of(mean_of_squares(model), model, tmp_path)
    report = json.loads((tmp_path / "repeats.json").read_text())
    (found,) = report["differences"]
    assert (report["watched"], found["step"], found["card"], found["odd_pass"]) == (1, 2, "cpu", 1)
    one, other, third = found["call"]["digests"]
    assert one != other == third
    assert found["call"]["dump"] == str(tmp_path / "step2/rank")
    assert list(read_dump(tmp_path / "step2/rank/dump.json").records) == ["Aten.tanh.default.0.forward"]
    assert f"pytest --msprobe-dump {tmp_path}/step2/rank --msprobe-repeat 100" in str(replay)


def test_without_calls_the_step_alone_is_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with FlippedBit("tanh", 4):
        replay = step_of(mean_of_squares(model), model, tmp_path, calls=False)
    (found,) = replay.report.differences
    assert (found.kind, found.step, found.odd_pass, found.call) == ("wrong", 2, 2, None)
    assert "calls not compared: calls=False" in found.reason


def test_a_step_that_differs_ends_the_training_on_request(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with FlippedBit("tanh", 3), pytest.raises(DifferingStepError, match=r"^step 2 \(cpu of .*aten.tanh.default"):
        step_of(mean_of_squares(model), model, tmp_path, on_difference="stop")


def test_a_function_that_takes_other_data_each_time_is_no_fault(tmp_path: Path) -> None:
    model, batches = nn.Linear(4, 2), iter(torch.arange(400.0).view(100, 1, 4).numpy())

    def loss() -> Tensor:
        found = model(torch.from_numpy(next(batches))).mean()
        found.backward()
        return found.detach()

    replay = step_of(loss, model, tmp_path)
    assert [each.kind for each in replay.report.differences] == ["not_repeatable"]
    assert "each pass gives it other inputs" in replay.report.differences[0].reason


def test_memory_that_a_call_leaves_undefined_is_no_fault(tmp_path: Path) -> None:
    model, bytes_before = nn.Linear(4, 2), iter(range(1, 100))

    @torch.library.custom_op("repeated_steps_tests::with_workspace", mutates_args=())
    def with_workspace(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, torch.empty(1000)

    def loss() -> Tensor:
        with NoDispatch():
            blocks = [torch.full((4000,), byte, dtype=torch.uint8) for byte in [next(bytes_before)] * 8]
            blocks.clear()
        found = model(with_workspace(torch.ones(3, 4))[0]).mean()
        found.backward()
        return found.detach()

    replay = step_of(loss, model, tmp_path, steps=5)
    assert replay.report.differences == []
    assert replay.report.undefined == ["repeated_steps_tests.with_workspace.default"]


def test_a_function_that_changes_parameters_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    with pytest.raises(
        ConfigError, match=r"^the function of replay_step\(\) changes parameters \(weight, bias\); allowed: "
    ):
        step_of(mean_of_squares(model), model, tmp_path)


def test_further_state_is_put_back(tmp_path: Path) -> None:
    model, generator = nn.Linear(4, 2), torch.Generator()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss() -> Tensor:
        found = model(torch.rand(3, 4, generator=generator)).mean()
        scaler.scale(found).backward()
        scaler.unscale_(optimizer)
        return found.detach()

    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path, stateful=[scaler, generator])
    for _ in range(3):
        optimizer.zero_grad()
        replay(loss)
        scaler.step(optimizer)
        scaler.update()
    assert (replay.report.watched, replay.report.differences) == (1, [])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "replay_step() takes either share=, as 0.01, or every=, as 100"),
        ({"share": 0.1, "every": 2}, "replay_step() takes either share=, as 0.01, or every=, as 100"),
        ({"share": 2}, "share is 2; allowed: a number above 0 and up to 1"),
        ({"every": 0}, "every is 0; allowed: a whole number from 1"),
        (
            {"every": 1, "stateful": [3]},
            "stateful is 'int'; allowed: torch.Generator, an object with load_state_dict",
        ),
        ({"every": 1, "on_difference": "fix"}, "on_difference is 'fix'; allowed: warn, stop"),
        ({"every": 1, "calls": 2}, "calls is 2; allowed: True, False"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        msprobe_hooks.replay_step(nn.Linear(1, 1), **options)
    assert str(error.value) == problem


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model is 'int'; allowed: a torch.nn.Module, a mindspore.nn.Cell"):
        msprobe_hooks.replay_step(3, every=1)
