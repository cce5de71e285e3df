"""The gradients of a model as a probe tells them: what is written is computed again by numpy."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.trainings.probing import Monitor, model_of, names, parameter, sgd, table


def test_maximum_minimum_norm_and_shape_are_those_of_each_gradient(monitor: Monitor) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    rank = monitor(model)
    model(torch.randn(4, 5)).square().sum().backward()
    gradients = {name: one.grad.numpy().astype(np.float64) for name, one in model.named_parameters()}
    sgd(model).step()
    assert names(rank) == list(gradients)
    for row in table(rank):
        gradient = gradients[row["param_name"]]
        assert (float(row["max"]), float(row["min"])) == (gradient.max(), gradient.min())
        assert float(row["norm"]) == pytest.approx(np.sqrt((gradient**2).sum()), rel=1e-6)
        assert json.loads(row["shape"]) == list(gradient.shape)


def test_a_summary_of_level_l1_is_written_to_the_letter(monitor: Monitor) -> None:
    model = model_of(w=parameter(3.0, -4.0))
    rank = monitor(model)
    sgd(model).step()
    assert (rank / "grad_summary_0.csv").read_bytes() == (
        b"\xef\xbb\xbfparam_name,max,min,norm,shape\r\nw,3.0,-4.0,5.0,[2]\r\n"
    )


def test_level_l2_has_the_share_of_elements_in_each_interval(monitor: Monitor) -> None:
    values = [-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 9.0]
    model = model_of(w=parameter(*values))
    rank = monitor(model, grad_level="L2", bounds=[-1, 0, 0.5])
    sgd(model).step()
    text = (rank / "grad_summary_0.csv").read_text("utf-8-sig")
    assert text.startswith('param_name,"(-inf, -1]","(-1, 0]","(0, 0.5]","(0.5, inf)",=0,max,min,norm,shape\n')
    (row,) = table(rank)
    counts = np.bincount(np.searchsorted([-1, 0, 0.5], values, side="left"), minlength=4)
    assert [float(row[key]) for key in list(row)[1:5]] == (counts / len(values)).tolist()
    assert float(row["=0"]) == 1 / 8


def test_a_nan_counts_where_msprobe_counts_it(monitor: Monitor) -> None:
    model = model_of(w=parameter(float("nan"), -1.0))
    rank = monitor(model, grad_level="L2", bounds=[0])
    sgd(model).step()
    (row,) = table(rank)
    of_msprobe = torch.bincount(torch.bucketize(model.w.grad, torch.tensor([0.0])), minlength=2) / 2
    assert [float(row["(-inf, 0]"]), float(row["(0, inf)"])] == of_msprobe.tolist()
    assert row["max"] == "nan"


def test_without_bounds_only_the_share_of_zeros_is_reported(monitor: Monitor) -> None:
    model = model_of(w=parameter(0.0, 1.0, 2.0, 3.0))
    rank = monitor(model, grad_level="L2", bounds=[])
    sgd(model).step()
    assert list(table(rank)[0].items())[1:3] == [("=0", "0.25"), ("max", "3.0")]


def test_level_l0_has_checksums_and_no_sign_maps(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0, -2.0, dtype=torch.bfloat16))
    rank = monitor(model, grad_level="L0")
    sgd(model).step()
    assert table(rank)[0]["MD5"] == hashlib.md5(np.array([1, -2], dtype=np.float32).tobytes()).hexdigest()
    assert [path.name for path in rank.iterdir()] == ["grad_summary_0.csv"]


def test_main_grad_goes_before_grad(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(2.0))
    model.a.main_grad, model.b.main_grad = torch.tensor([5.0]), None  # type: ignore[attr-defined, union-attr]
    rank = monitor(model)
    sgd(model).step()
    assert [row["max"] for row in table(rank)] == ["5.0", "2.0"]


def test_parameters_without_a_gradient_or_not_asked_for_are_left_out(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(1.0), c=nn.Parameter(torch.ones(1)))
    rank = monitor(model, param_list=["b", "c"])
    sgd(model).step()
    assert names(rank) == ["b"]


def test_the_norm_of_half_precision_does_not_overflow(monitor: Monitor) -> None:
    model = model_of(w=parameter(6e4, 6e4, dtype=torch.float16))
    rank = monitor(model)
    sgd(model).step()
    assert float(table(rank)[0]["norm"]) == pytest.approx(np.hypot(6e4, 6e4), rel=1e-3)


def test_a_sparse_gradient_is_reported_as_the_dense_one(monitor: Monitor) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    rank = monitor(model)
    model(torch.tensor([1, 1])).sum().backward()
    sgd(model).step()
    assert (table(rank)[0]["max"], table(rank)[0]["shape"]) == ("2.0", "[5, 2]")
    assert np.load(rank / "step0" / "weight.npy").tolist() == [[False] * 2, [True] * 2, *[[False] * 2] * 3]


def test_training_computes_the_same_bits(monitor: Monitor) -> None:
    def trained() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters())
        if is_monitored:
            monitor(model, grad_level="L2")
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        return [one.tolist() for one in model.parameters()]

    is_monitored = False
    plain = trained()
    is_monitored = True
    assert trained() == plain


def test_a_parameters_name_does_not_leave_the_folder(monitor: Monitor, tmp_path: Path) -> None:
    model = nn.Module()
    model.add_module(f"{tmp_path}/out", model_of(w=parameter(1.0)))
    rank = monitor(model)
    sgd(model).step()
    assert [path.name for path in (rank / "step0").iterdir()] == [f"{tmp_path}/out.w.npy".replace("/", "%2F")]
    assert names(rank) == [f"{tmp_path}/out.w"]
