"""Norms that grow by what a function is, and those that do not."""

from __future__ import annotations

import pytest

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.extensions.overflow.anomaly import (
    Finding,
    RecordIO,
    ValuePath,
    find_scene,
    is_expected,
    is_of_optimizer,
)


def tensor(norm: float, high: float) -> TensorElement:
    return TensorElement(
        type="torch.Tensor", dtype="torch.float32", shape=(4,), max=high, min=0.0, mean=high / 2, norm=norm
    )


def grown(name: str, before: float, after: float, high: float) -> Finding | None:
    sides = (ValuePath("input.0", tensor(before, before)),), (ValuePath("output.0", tensor(after, high)),)
    return find_scene(RecordIO(name, *sides))


def expected(name: str, before: float, after: float, high: float, *, of_optimizer: bool = False) -> bool:
    finding = grown(name, before, after, high)
    assert finding is not None
    return is_expected(finding, name, lambda: of_optimizer)


@pytest.mark.parametrize("name", ["Torch.ones_like.0.forward", "Tensor.new_full.0.forward", "Tensor.normal_.0.forward"])
def test_values_that_do_not_come_from_the_inputs_do_not_grow(name):
    assert grown(name, 1e-6, 50.0, 50.0) is None


@pytest.mark.parametrize(
    ("name", "after", "of_optimizer", "answer"),
    [
        ("Tensor.sqrt.0.forward", 1e-3, False, True),
        ("Torch._foreach_sqrt.0.forward", 1e-3, False, True),
        ("Tensor.rsqrt_.0.forward", 1e3, True, True),
        ("Tensor.__rtruediv__.0.forward", 1e3, True, True),
        ("Torch._foreach_div_.0.forward", 1e3, True, True),
        ("Tensor.rsqrt.0.forward", 1e3, False, False),
        ("Tensor.sqrt.0.forward", 1e3, False, False),
        ("Functional.linear.0.forward", 1e3, True, False),
    ],
)
def test_growth_is_expected_of_some_functions_and_of_optimizers(name, after, of_optimizer, answer):
    assert expected(name, 1e-6, after, after, of_optimizer=of_optimizer) is answer


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        ("File /site-packages/torch/optim/adam.py, line 1, in step, x = y", True),
        ("File /megatron/core/optimizer/optimizer.py, line 1, in step, x = y", True),
        ("File /home/me/train.py, line 1, in step, optimizer = optim(x), y", False),
    ],
)
def test_a_file_of_an_optimizer_is_known_by_its_path(frame, answer):
    assert is_of_optimizer(["File /a/other.py, line 3, in f, g()", frame]) is answer
