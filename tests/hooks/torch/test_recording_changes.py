"""Tensors that a call or a training changes: each call shows them as they were then."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe_hooks.record import record

X = torch.arange(16.0).reshape(4, 4) / 10


def test_an_in_place_call_shows_its_input_before_the_change(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        x.mul_(10)
    body = records(tmp_path / "d")["Tensor.mul_.0.forward"]
    assert body["input_args"][0]["Max"] == 1.5
    assert body["output"][0]["Max"] == 15.0


def test_running_statistics_are_measured_at_every_call(tmp_path, records):
    norm, x = nn.BatchNorm1d(4), X.clone()
    with record(tmp_path / "d"):
        for _ in range(2):
            norm(x)
        want = norm.running_var.max().item()
        norm(x)
    found = records(tmp_path / "d")
    first, second, third = (found[f"Functional.batch_norm.{i}.forward"]["input_args"][2]["Max"] for i in range(3))
    assert first != second != third == want


@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_parameters_are_measured_anew_after_an_optimizer_step(tmp_path, records, kind):
    linear = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.5, **{kind: True})
    with record(tmp_path / "d"):
        linear(X).sum().backward()
        optimizer.step()
        linear(X)
    second = records(tmp_path / "d")["Functional.linear.1.forward"]["input_args"][1]
    assert second["Max"] == linear.weight.max().item()


def test_memory_changed_behind_the_version_counter_is_measured_anew(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        torch.tanh(x)
        x.data.add_(1)
        torch.tanh(x)
    found = records(tmp_path / "d")
    assert found["Torch.tanh.1.forward"]["input_args"][0]["Max"] == X.max().item() + 1


def test_gradients_reduced_by_data_parallelism_are_measured_anew(tmp_path, records):
    linear = nn.Linear(4, 4)
    with record(tmp_path / "d"):
        linear(X).sum().backward()
        torch.tanh(linear.weight.grad)
        with torch.autograd._unsafe_preserve_version_counter(linear.weight.grad):
            linear.weight.grad.mul_(3)
        torch.autograd.backward([linear(X).sum()], inputs=[linear.bias])
        torch.tanh(linear.weight.grad)
    found = records(tmp_path / "d")
    assert found["Torch.tanh.1.forward"]["input_args"][0]["Max"] == linear.weight.grad.max().item()
