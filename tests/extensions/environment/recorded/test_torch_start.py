"""A training of torch that is followed from its start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks.extensions.environment.environment import write_environment
from msprobe_hooks.extensions.environment.start_file import Started, TensorFact, read_started


@pytest.fixture(autouse=True)
def _same_generators() -> Iterator[None]:
    """Leave the generators of the process as they were."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.linear = nn.Linear(3, 2, dtype=torch.bfloat16)

    def forward(self, x: Tensor, *, mask: dict[str, Tensor], scale: float) -> Tensor:
        return self.linear(self.norm(x).bfloat16()) * scale + mask["bias"]


def train(model: nn.Module, steps: int = 3) -> Tensor:
    """Train a few steps from the generators' state and return all parameters as one tensor."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.randn(4, 3), mask={"bias": torch.ones(2)}, scale=0.5).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([value.detach().flatten().float() for value in model.parameters()])


def started(folder: Path) -> Started:
    return read_started(folder / "rank0.json")


def test_what_a_model_is_given_and_consists_of_is_written_for_its_first_steps(tmp_path: Path) -> None:
    torch.manual_seed(1)
    write_environment(tmp_path, steps=2)
    model = Model()
    before = model.linear.weight.detach().clone()
    train(model)
    written = started(tmp_path)
    assert written.batches is not None
    assert written.weights is not None
    assert list(written.batches) == [0, 1]
    assert list(written.batches[0]) == ["args.0", "kwargs.mask.bias", "kwargs.scale"]
    assert written.batches[0]["kwargs.scale"] == "0.5"
    bias = written.batches[0]["kwargs.mask.bias"]
    assert isinstance(bias, TensorFact)
    assert (bias.max, bias.mean, bias.dtype, bias.shape) == (1, 1, "float32", (2,))
    assert bias == written.batches[1]["kwargs.mask.bias"]
    first, second = (written.weights[step]["linear.weight"] for step in (0, 1))
    assert (first.max, first.min) == (before.max().item(), before.min().item())
    assert (first.dtype, first.shape) == ("bfloat16", (2, 3))
    assert first.digest != second.digest
    assert written.buffers is not None
    assert set(written.buffers[0]) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert written.switches is not None
    assert written.switches["default dtype"] == "torch.float32"


def test_training_is_the_same_and_nothing_is_left_behind(tmp_path: Path) -> None:
    drawn = random.random, np.random.rand, torch.manual_seed.__code__, nn.Module.__call__
    results = []
    for followed in (False, True):
        if followed:
            write_environment(tmp_path)
        torch.manual_seed(5)
        results.append(train(Model()))
    assert torch.equal(*results)
    assert (random.random, np.random.rand, torch.manual_seed.__code__, nn.Module.__call__) == drawn
    assert torch._C._len_torch_function_stack() == 0


def test_random_calls_before_the_first_forward_pass_are_counted_by_stack(tmp_path: Path) -> None:
    write_environment(tmp_path)
    random.seed(3)
    for _ in range(4):
        np.random.rand(2)
    torch.manual_seed(9)
    values = [torch.randn(2), torch.empty(2).normal_()]
    model = Model()
    train(model)
    written = started(tmp_path)
    assert len(values) == 2
    assert written.random is not None
    counts = {name: [calls.count for calls in found] for name, found in written.random.items()}
    # A layer initialises weight and bias; the batches of the training come after the first call began.
    assert counts == {
        "random.seed": [1],
        "np.random.rand": [4],
        "torch.manual_seed": [1],
        "torch.randn": [1, 1],
        "torch.Tensor.normal_": [1],
        "torch.nn.init.kaiming_uniform_": [1],
        "torch.nn.init.uniform_": [1],
    }
    innermost = written.random["torch.manual_seed"][0].stack[-1]
    assert innermost.startswith(f"File {__file__}, line ")
    assert innermost.endswith(
        "in test_random_calls_before_the_first_forward_pass_are_counted_by_stack, torch.manual_seed(9)"
    )
    assert written.seeds is not None
    assert {name: written.seeds[name] for name in ("random.seed", "torch.manual_seed", "torch.initial_seed")} == {
        "random.seed": "3",
        "torch.manual_seed": "9",
        "torch.initial_seed": "9",
    }
    assert "state of random" in written.seeds
    assert "state of np.random" not in written.seeds


def test_a_model_may_be_named(tmp_path: Path) -> None:
    model = Model()
    write_environment(tmp_path, model, steps=1)
    nn.Linear(3, 3)(torch.ones(1, 3))
    assert not (tmp_path / "rank0.json").exists()
    train(model)
    weights = started(tmp_path).weights
    assert weights is not None
    assert "linear.weight" in weights[0]


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "start").write_text("a file")
    write_environment(tmp_path / "start", steps=1)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        train(Model(), steps=1)


@pytest.mark.parametrize("part", ["switches", "place", "batch", "before_calls"])
def test_what_cannot_be_known_is_a_problem_of_the_file_and_not_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("this part is broken")

    torch.manual_seed(1)
    plain = train(Model())
    monkeypatch.setattr(f"msprobe_hooks.extensions.environment.torch_training.TorchTraining.{part}", broken)
    start = write_environment(tmp_path, steps=1)
    torch.manual_seed(1)
    assert torch.equal(train(Model()), plain)
    assert any("this part is broken" in problem for problem in start._started.problems)
    start._end_waiting()
    for each in start._random:
        each.end()


def test_a_file_that_cannot_be_written_ends_no_training_in_which_warnings_are_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    write_environment(tmp_path / "file", steps=1)
    train(Model())
    assert "cannot be written" in caplog.text
