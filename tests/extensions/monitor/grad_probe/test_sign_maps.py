"""Sign maps that a probe writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from msprobe_hooks import GradComparator
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe import torch_statistics as statistics
from tests.support.trainings.probing import Monitor, finish, model_of, parameter, sgd


def test_a_sign_map_shows_what_is_greater_than_zero(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0, 0.0, -1.0), b=parameter(-2.0), empty=parameter())
    rank = monitor(model)
    sgd(model).step()
    found = {path.stem: np.load(path) for path in (rank / "step0").iterdir()}
    assert {name: signs.tolist() for name, signs in found.items()} == {
        "a": [True, False, False],
        "b": [False],
        "empty": [],
    }
    assert {signs.dtype for signs in found.values()} == {np.dtype(bool)}


def test_sign_maps_keep_the_shape_of_the_gradient_whatever_its_strides(monitor: Monitor) -> None:
    model = nn.Linear(4, 3, bias=False)
    rank = monitor(model)
    model.weight.grad = torch.randn(4, 3).T
    sgd(model).step()
    np.testing.assert_array_equal(np.load(rank / "step0" / "weight.npy"), model.weight.grad.numpy() > 0)


def test_sign_maps_that_leave_a_device_together_come_back_one_by_one() -> None:
    gradients = [torch.randn(3, 4).T, torch.tensor(-1.0), torch.zeros(0, 2), torch.randn(7)]
    for gradient, signs in zip(gradients, statistics.fetch_signs(gradients), strict=True):
        np.testing.assert_array_equal(signs, gradient.numpy() > 0)


def test_packed_sign_maps_are_compared_as_plain_ones(monitor: Monitor, tmp_path: Path) -> None:
    for run, sign_format in (("plain", "bool"), ("packed", "packed")):
        model = model_of(w=parameter(*np.random.default_rng(0).normal(size=99)))
        rank = monitor(model, dump_path=run, sign_format=sign_format)
        sgd(model).step()
        finish()
    assert sign_maps.read(rank / "step0" / "w.npy").shape == (99,)
    assert np.load(rank / "step0" / "w.npy")["bits"].size == 13
    GradComparator.compare_distributed(tmp_path / "plain", tmp_path / "packed", tmp_path / "out")
    assert "summary,1.0" in (tmp_path / "out" / "rank0" / "similarities.csv").read_text()
