"""Gradients, parameters, moments and updates as an optimizer has them, against plain arithmetic."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import watch
from tests.support.dumps.training import adam, by_name, model, train


def test_gradients_and_parameters_are_reported_as_the_optimizer_has_them(tmp_path):
    one = model()
    optimizer = adam(one)
    seen = []

    def note(*_):
        seen.append({name: copy.deepcopy((each.grad, each.detach())) for name, each in one.named_parameters()})

    optimizer.register_step_pre_hook(note)
    optimizer.register_step_post_hook(note)
    what = ["gradients", "parameters", "moments", "updates", "direction"]
    with watch(one, optimizer, tmp_path, what=what) as watcher:
        train(one, optimizer, steps=2, micro_batches=3)
        rows = watcher.rows
    before, after = seen[-2:]
    for name, (gradient, parameter) in before.items():
        assert by_name(rows, "grad_reduced")[name, None][0] == pytest.approx(gradient.double().norm().item())
        assert by_name(rows, "param_origin")[name, None][0] == pytest.approx(parameter.double().norm().item())
        assert by_name(rows, "param_updated")[name, None][0] == pytest.approx(after[name][1].double().norm().item())
        # Where nothing is clipped and no ranks are reduced over, all micro batches together are what is stepped.
        assert by_name(rows, "grad_unreduced")[name, None] == by_name(rows, "grad_reduced")[name, None]
    state = optimizer.state[one[4].weight]
    corrected = state["exp_avg"] / (1 - 0.9**2)
    root = (state["exp_avg_sq"] / (1 - 0.999**2)).sqrt()
    update = by_name(rows, "adam_update")["4.weight", None][0]
    assert update == pytest.approx((corrected / (root + 1e-8)).double().norm().item(), rel=1e-5)


def test_signs_of_gradient_and_moment_are_compared(tmp_path):
    one = nn.Linear(4, 1, bias=False)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["direction"], statistics=["mean"]) as watcher:
        for signs, share in (([1.0, 1, 1, 1], 1.0), ([1.0, 1, 1, -1], 0.75), ([0.0, 1, 1, 1], 0.625)):
            one.weight.grad = torch.tensor([signs])
            optimizer.step()
            assert by_name(watcher.rows, "other")["weight.mg_direction", None] == (share,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_signs_of_large_gradients_are_compared_over_all_their_parts(tmp_path, dtype):
    draw = torch.Generator().manual_seed(0)
    one = nn.Linear(300_001, 1, bias=False, dtype=dtype)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["direction"], statistics=["mean"]) as watcher:
        for _ in range(2):
            one.weight.grad = torch.randn(1, 300_001, generator=draw).round().to(dtype)
            moment = optimizer.state[one.weight].get("exp_avg", one.weight.grad).double().numpy().copy()
            optimizer.step()
        share = (np.mean(np.sign(moment) * np.sign(one.weight.grad.double().numpy())) + 1) / 2
        assert by_name(watcher.rows, "other")["weight.mg_direction", None] == pytest.approx((share,), rel=1e-12)


def test_directions_of_many_parameters_are_those_of_each(tmp_path):
    one = nn.ParameterList([nn.Parameter(torch.randn(1 + number % 7)) for number in range(70)])
    one.append(nn.Parameter(torch.randn(2, 9000)))
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["direction"], statistics=["mean"]) as watcher:
        for step in range(2):
            for number, parameter in enumerate(one):
                parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number + step))
            moments = [optimizer.state[parameter]["exp_avg"].clone() for parameter in one if step]
            optimizer.step()
    for number, (parameter, moment) in enumerate(zip(one, moments, strict=True)):
        share = ((parameter.grad.sign() * moment.sign()).double().mean().item() + 1) / 2
        found = by_name(watcher.rows, "other")[f"{number}.mg_direction", None]
        assert found == (pytest.approx(share, rel=1e-12),)


def test_each_micro_batch_has_its_gradients_where_that_is_asked_for(tmp_path):
    one = nn.Linear(3, 2)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["micro_batch_gradients", "activations"], micro_batches=2) as watcher:
        train(one, optimizer, steps=1, micro_batches=2)
    assert set(by_name(watcher.rows, "grad_unreduced")) == {
        (name, number) for name in ("weight", "bias") for number in (0, 1)
    }
    assert set(by_name(watcher.rows, "actv")) == {(name, number) for name in (".input", ".output") for number in (0, 1)}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_of_layers_around_a_checkpoint_are_reported_in_backward_order(tmp_path, use_reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(3, 3, bias=False) for _ in range(3))

        def forward(self, x):
            return self.third(checkpoint(self.second, self.first(x), use_reentrant=use_reentrant))

    one = Checkpointed()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.0)
    with watch(one, optimizer, tmp_path, what=["gradients"]) as watcher:
        train(one, optimizer, steps=1)
    found = by_name(watcher.rows, "grad_unreduced")
    assert [name for name, _ in found] == ["third.weight", "second.weight", "first.weight"]
    for (name, _), (norm,) in found.items():
        assert norm == pytest.approx(one.get_parameter(name).grad.norm().item(), rel=1e-6)


def test_an_optimizer_reports_its_own_parameters_only(tmp_path):
    one = nn.ModuleDict({"generator": nn.Linear(3, 2), "critic": nn.Linear(2, 1)})
    generator, optimizer = adam(one["generator"]), adam(one["critic"])
    with watch(one, optimizer, tmp_path, what=["gradients"]) as watcher:
        one["critic"](one["generator"](torch.randn(4, 3))).mean().backward()
        optimizer.step()
        generator.step()
    assert {name for name, _ in by_name(watcher.rows, "grad_reduced")} == {"critic.weight", "critic.bias"}


def test_updates_have_their_distribution_in_events(tmp_path):
    pytest.importorskip("tensorboard")
    one = nn.Linear(40, 5, bias=False)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["updates"], format="tensorboard") as watcher:
        for _ in range(2):
            optimizer.zero_grad()
            one(torch.randn(8, 40)).square().sum().backward()
            optimizer.step()
    state = optimizer.state[one.weight]
    first, second = (state[name].double().numpy() for name in ("exp_avg", "exp_avg_sq"))
    (beta1, beta2), eps = optimizer.defaults["betas"], optimizer.defaults["eps"]
    update = first / (1 - beta1**2) / (np.sqrt(second / (1 - beta2**2)) + eps)
    expected, _ = np.histogram(update, 30, (-1, 1))
    (row,) = [row for row in watcher.rows if row.task == "adam_update"]
    assert row.distribution == tuple(expected)


def test_the_ratio_of_rows_never_updated_is_0_and_not_nan(tmp_path):
    one = nn.Embedding(10, 2)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["updates"], statistics=["nans", "zeros"]) as watcher:
        one(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    assert by_name(watcher.rows, "adam_ratio")["weight", None] == (0.0, 0.8)
