"""Calls are named as they were written."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch import relu as relu_by_name

from msprobe_hooks.record import record

X = torch.arange(16.0).reshape(4, 4) / 10


def test_a_function_imported_by_name_is_recorded(tmp_path, records):
    with record(tmp_path / "d"):
        relu_by_name(X)
    assert list(records(tmp_path / "d")) == ["Torch.relu.0.forward"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x + x, "Tensor.__add__"),
        (lambda x: x.add(x), "Tensor.add"),
        (lambda x: torch.add(x, x), "Torch.add"),
        (lambda x: x - 1, "Tensor.__sub__"),
        (lambda x: 1 - x, "Tensor.__rsub__"),
        (lambda x: x * 2, "Tensor.__mul__"),
        (lambda x: x / 2, "Tensor.__truediv__"),
        (lambda x: x // 2, "Tensor.__floordiv__"),
        (lambda x: x % 2, "Tensor.__mod__"),
        (lambda x: x**2, "Tensor.__pow__"),
        (lambda x: x.pow(2), "Tensor.pow"),
        (lambda x: x @ x, "Tensor.__matmul__"),
        (lambda x: x > 1, "Tensor.__gt__"),
        (lambda x: x != 1, "Tensor.__ne__"),
        (lambda x: x == 1, "Tensor.__eq__"),
        (lambda x: x[0], "Tensor.__getitem__"),
        (lambda x: F.conv2d(x[None, None], x[None, None]), "Functional.conv2d"),
        (lambda x: F.max_pool2d(x[None], 2), "Functional.max_pool2d"),
        (lambda x: torch.linalg.norm(x), "Torch.linalg.norm"),
        (lambda x: F.gelu(x), "Functional.gelu"),
        (lambda x: nn.LSTM(4, 4)(x[None]), "VF.lstm"),
    ],
)
def test_a_call_is_named_as_it_was_written(tmp_path, records, call, name):
    with record(tmp_path / "d"):
        call(X.clone())
    assert f"{name}.0.forward" in records(tmp_path / "d")


def test_augmented_assignment_is_named_by_its_operator(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        x += 1
        x.add_(1)
    assert list(records(tmp_path / "d")) == ["Tensor.__iadd__.0.forward", "Tensor.add_.0.forward"]


def test_a_number_that_takes_a_tensor_in_place_is_on_its_left(tmp_path, records):
    with record(tmp_path / "d"):
        total = 0
        total += X
        factor = 2
        factor *= X
    assert list(records(tmp_path / "d")) == ["Tensor.__radd__.0.forward", "Tensor.__rmul__.0.forward"]


def test_functions_of_python_use_operators(tmp_path, records):
    with record(tmp_path / "d"):
        sum([X, X])
    assert list(records(tmp_path / "d")) == ["Tensor.__radd__.0.forward", "Tensor.__add__.0.forward"]


def test_a_method_that_is_looked_up_by_its_name_is_no_operator(tmp_path, records):
    with record(tmp_path / "d") as session:
        getattr(X, "ad" + "d")(2.0, alpha=3)
        getattr(X, "mu" + "l")(other=X)
    assert list(records(tmp_path / "d")) == ["Tensor.add.0.forward", "Tensor.mul.0.forward"]
    assert not session.summary.errors
