"""Gradients that are zero in mathematics: the rounding of one run is no error next to that of the other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, tensor_around

Gradients = tuple[torch.Tensor, torch.Tensor]


def described(values: torch.Tensor) -> Json:
    numbers = {"Max": values.max(), "Min": values.min(), "Mean": values.mean(), "Norm": values.norm()}
    statistics = {name: float(number) for name, number in numbers.items()}
    return tensor_around(*values.shape, dtype=str(values.dtype)) | statistics


def bias_before_normalisation(dtype: torch.dtype, normalised: bool = True) -> Gradients:
    """What arrives at a convolution, and the gradient of its bias, computed in a dtype."""
    generator = torch.Generator().manual_seed(3)
    image, weight = (torch.randn(*shape, generator=generator) for shape in ((3, 4, 9, 9), (8, 4, 3, 3)))
    wanted = torch.randn(3, 8, 7, 7, generator=generator)
    bias = torch.zeros(8, dtype=dtype, requires_grad=True)
    convolved = F.conv2d(image.to(dtype), weight.to(dtype), bias)
    convolved.retain_grad()
    result = F.batch_norm(convolved, None, None, training=True) if normalised else convolved
    ((result - wanted.to(dtype)) ** 2).sum().backward()
    assert convolved.grad is not None
    assert bias.grad is not None
    return convolved.grad.float(), bias.grad.float()


def module_records(arrived: torch.Tensor, bias: torch.Tensor) -> Json:
    backward = {"input": [described(arrived)], "output": [None]}
    return {
        "Module.conv.Conv2d.backward.0": backward,
        "Module.conv.Conv2d.parameters_grad.0": {"bias": [described(bias)]},
    }


def api_records(arrived: torch.Tensor, bias: torch.Tensor) -> Json:
    tensor = tensor_around(2)
    return {
        "Functional.conv2d.0.forward": {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]},
        "Functional.conv2d.0.backward": {"input": [described(arrived)], "output": [described(bias)]},
    }


@pytest.mark.parametrize("records", [module_records, api_records])
def test_a_bias_before_a_normalisation_has_no_gradient_to_differ_in(tmp_path: Path, records) -> None:  # type: ignore[no-untyped-def]
    rounded, exact = (bias_before_normalisation(dtype) for dtype in (torch.float32, torch.float64))
    assert not torch.allclose(rounded[1], exact[1], rtol=0.1, atol=0)
    pair = Runs(tmp_path).pair(records(*rounded), records(*exact))
    assert {pair.compare(name).outcome for name in pair.orders} == {"pass"}


@pytest.mark.parametrize("records", [module_records, api_records])
def test_a_gradient_that_cancels_on_one_side_alone_is_wrong(tmp_path: Path, records) -> None:  # type: ignore[no-untyped-def]
    arrived, vanishing = bias_before_normalisation(torch.float32)
    wrong = vanishing + arrived.norm() * 1e-3
    pair = Runs(tmp_path).pair(records(arrived, wrong), records(arrived, vanishing))
    assert [pair.compare(name).outcome for name in pair.orders][-1] == "fail"


@pytest.mark.parametrize("records", [module_records, api_records])
def test_a_gradient_that_does_not_cancel_is_judged_by_its_own_scale(tmp_path: Path, records) -> None:  # type: ignore[no-untyped-def]
    arrived, bias = bias_before_normalisation(torch.float32, normalised=False)
    pair = Runs(tmp_path).pair(records(arrived, bias * 1.001), records(arrived, bias))
    assert [pair.compare(name).outcome for name in pair.orders][-1] == "fail"


def test_without_a_record_of_what_arrived_nothing_is_excused(tmp_path: Path) -> None:
    name = "Module.conv.Conv2d.parameters_grad.0"
    rounded, exact = (module_records(*bias_before_normalisation(dtype)) for dtype in (torch.float32, torch.float64))
    pair = Runs(tmp_path).pair({name: rounded[name]}, {name: exact[name]})
    assert pair.compare(name).outcome == "fail"
