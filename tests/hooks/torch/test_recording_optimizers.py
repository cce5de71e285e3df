"""Calls for many tensors at once, as optimizers make them."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from msprobe_hooks.record import record


def stepped(optimizer_class, **options):
    """A parameter of ones, its gradient of ones, and an optimizer over it."""
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    return parameter, optimizer_class([parameter], lr=0.5, **options)


FOREACH = [
    name
    for name in torch.optim.__all__
    if isinstance(getattr(torch.optim, name), type)
    and "foreach" in inspect.signature(getattr(torch.optim, name)).parameters
]


@pytest.mark.parametrize("name", FOREACH)
def test_every_optimizer_records_its_calls_for_many_tensors(tmp_path, records, name):
    parameter, optimizer = stepped(getattr(torch.optim, name), foreach=True)
    with record(tmp_path / "d") as session:
        optimizer.step()
    found = records(tmp_path / "d")
    calls = [call for record, call in found.items() if "_foreach_" in record]
    after = [entry["Max"] for call in calls for entry in _tensors(call["output"])]
    assert session.summary.errors == {}
    assert parameter.max().item() in after


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "AdamW", "SGD"])
def test_a_fused_optimizer_records_its_lists_before_and_after(tmp_path, records, name):
    parameter, optimizer = stepped(getattr(torch.optim, name), fused=True)
    with record(tmp_path / "d"):
        optimizer.step()
    (call,) = [call for name, call in records(tmp_path / "d").items() if "_fused_" in name]
    assert call["input_args"][0][0]["Max"] == 1.0
    assert call["output"][0][0]["Max"] == parameter.max().item() != 1.0


def test_a_call_for_many_tensors_shows_them_before_and_after(tmp_path, records):
    x = [torch.zeros(2), torch.ones(2)]
    with record(tmp_path / "d"):
        torch._foreach_add_(x, 1.0)
    call = records(tmp_path / "d")["Torch._foreach_add_.0.forward"]
    assert [entry["Max"] for entry in call["input_args"][0]] == [0.0, 1.0]
    assert [entry["Max"] for entry in call["output"]] == [1.0, 2.0]


def _tensors(elements):
    for element in elements:
        if isinstance(element, list):
            yield from _tensors(element)
        elif element is not None and "Max" in element:
            yield element
