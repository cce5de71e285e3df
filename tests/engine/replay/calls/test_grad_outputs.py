"""Recorded gradients find the outputs that they arrived for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe_hooks.dump.schema import Element, TensorElement, backward_record
from pytest_msprobe.engine.replay.calls.grad_outputs import grad_outputs
from pytest_msprobe.engine.replay.inputs.random_tensors import random_tensor
from pytest_msprobe.results.outcomes import Skip, SkipReason


def recorded(*shape: int, low: float = -1.0, high: float = 1.0, dtype: str = "torch.float32") -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), "Max": high, "Min": low}


def output(*shape: int, dtype: torch.dtype = torch.float32, differentiable: bool = True) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, requires_grad=differentiable)


def arriving(elements: list[Any], outputs: Any) -> dict[str, torch.Tensor]:
    return grad_outputs(
        backward_record("Torch.x.0.backward", {"input": elements, "output": []}),
        lambda e, _: random_tensor(e, 1),
        None,
        outputs,
    )


def test_a_single_output_gets_the_recorded_range() -> None:
    found = arriving([recorded(3, 4, low=-2.0, high=5.0)], output(3, 4))
    assert list(found) == [""]
    assert (found[""].min().item(), found[""].max().item()) == (-2.0, 5.0)


def test_several_outputs_get_theirs_by_position() -> None:
    elements = [recorded(3, high=1.0), recorded(3, high=2.0), recorded(4, high=3.0)]
    found = arriving(elements, [output(3), output(3), output(4)])
    assert {path: gradient.max().item() for path, gradient in found.items()} == {"0": 1.0, "1": 2.0, "2": 3.0}


def test_an_output_whose_gradient_was_null_gets_none() -> None:
    assert list(arriving([recorded(3), None], (output(3), output(3)))) == ["0"]


def test_outputs_that_cannot_be_differentiated_get_none() -> None:
    indices = output(3, dtype=torch.int64, differentiable=False)
    assert list(arriving([recorded(3), None], (output(3), indices))) == ["0"]
    assert list(arriving([recorded(3)], (output(3), indices))) == ["0"]


def test_positions_may_be_those_of_the_outputs_that_can_be_differentiated() -> None:
    outputs = (output(3), output(3, differentiable=False), output(3))
    assert list(arriving([recorded(3), None], outputs)) == ["0"]
    assert list(arriving([None, recorded(3)], outputs)) == ["2"]


def test_a_gradient_that_is_null_though_gradients_left_is_drawn() -> None:
    record = backward_record("Torch.x.0.backward", {"input": [None], "output": [recorded(7)]})
    found = grad_outputs(record, lambda e, _: random_tensor(e, 1), None, output(3, 4))
    assert found[""].shape == (3, 4)
    assert (found[""].min().item(), found[""].max().item()) == (-1.0, 1.0)


def test_the_shapes_of_a_composite_apis_last_node_give_way_to_the_outputs() -> None:
    found = arriving([recorded(12, low=-3.0, high=4.0)], output(3, 4))
    assert found[""].shape == (3, 4)
    assert (found[""].min().item(), found[""].max().item()) == (-3.0, 4.0)


def test_a_gradient_is_found_by_shape_where_positions_do_not_match() -> None:
    found = arriving([recorded(7, high=9.0), recorded(3, high=2.0), recorded(1)], [output(3), output(5)])
    assert found["0"].max().item() == 2.0
    assert found["1"].max().item() == 9.0


def test_a_gradient_takes_the_dtype_of_its_output() -> None:
    found = arriving([recorded(3)], output(3, dtype=torch.bfloat16))
    assert found[""].dtype is torch.bfloat16


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_small_and_empty_outputs_get_gradients(shape: tuple[int, ...]) -> None:
    assert arriving([recorded(*shape)], output(*shape))[""].shape == shape


@pytest.mark.parametrize(
    ("elements", "outputs"),
    [
        ([None], output(3)),
        ([], output(3)),
        ([recorded(3)], output(3, differentiable=False)),
        ([recorded(3)], None),
        ([recorded(3)], 5),
    ],
    ids=["null", "nothing recorded", "not differentiable", "None", "a number"],
)
def test_nothing_to_differentiate_is_a_skip(elements: list[Any], outputs: Any) -> None:
    with pytest.raises(Skip) as caught:
        arriving(elements, outputs)
    assert caught.value.reason is SkipReason.NO_GRADIENT


def test_each_output_draws_from_a_stream_of_its_own() -> None:
    paths: list[str] = []

    def source(element: TensorElement, path: str) -> torch.Tensor:
        paths.append(path)
        return random_tensor(element, 0)

    elements: list[Element] = [TensorElement("torch.Tensor", "torch.float32", (3,), max=1.0, min=0.0)] * 2
    record = backward_record("Torch.x.0.backward", {"input": [], "output": []})
    grad_outputs(type(record)(record.name, elements, []), source, None, (output(3), output(3)))
    assert paths == ["grad.0", "grad.1"]


def test_an_operator_of_torch_npu_that_passed_no_gradient_on_has_none() -> None:
    record = backward_record("NPU.npu_gelu_mul.0.backward", {"input": [recorded(3, 4)], "output": [None]})
    with pytest.raises(Skip, match="torch_npu gave none when it was recorded: the operator has no gradient"):
        grad_outputs(record, lambda e, _: random_tensor(e, 1), None, output(3, 4))
