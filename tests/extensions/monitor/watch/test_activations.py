"""What modules take and give in a training that is watched, and the gradients of these."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import watch
from msprobe_hooks.extensions.monitor.watch.config import STATISTICS
from tests.support.dumps.training import Block, adam, by_name, model, train


def test_gradients_of_activations_are_those_of_full_backward_hooks(tmp_path):
    one = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))
    reported = {}
    for name, module in one.named_modules():

        def hook(_, grad_inputs, grad_outputs, name=name):
            for side, gradients in (("input", grad_inputs), ("output", grad_outputs)):
                if gradients[0] is not None:
                    reported[f"{name}.{side}", 0] = gradients[0].double().norm().item()

        module.register_full_backward_hook(hook)
    with watch(one, None, tmp_path, what=["activation_gradients"]) as watcher:
        one(torch.randn(4, 3, requires_grad=True)).square().mean().backward()
        watcher.end_step()
    found = by_name(watcher.rows, "actv_grad")
    assert {key: values[0] for key, values in found.items()} == pytest.approx(reported, rel=1e-6)


def test_an_output_that_is_a_view_has_its_gradient_where_those_of_inputs_are_not_wanted(tmp_path):
    one, weights = nn.Linear(4, 5), torch.randn(2, 3, 5)
    targets = {"": {"output_grad": "tensor"}}
    with watch(one, None, tmp_path, what=["activation_gradients"], targets=targets) as watcher:
        (one(torch.randn(2, 3, 4)) * weights).sum().backward()
        watcher.end_step()
    assert [row.values for row in watcher.rows] == [(pytest.approx(weights.double().norm().item()),)]


def test_gradients_that_meet_are_distinguished_by_module(tmp_path):
    one = Block(3)
    x = torch.randn(4, 3, requires_grad=True)
    with watch(one, None, tmp_path, what=["activation_gradients"]) as watcher:
        one(x).sum().backward()
        watcher.end_step()
    found = {name: values[0] for (name, _), values in by_name(watcher.rows, "actv_grad").items()}
    # Of the block's input the residual's share and the norm's; of the norm's input its own alone.
    assert found["norm.input"] == pytest.approx((x.grad - 1).norm().item(), rel=1e-4)
    assert found[".input"] == pytest.approx(x.grad.norm().item(), rel=1e-4)


def test_an_input_is_measured_before_the_module_changes_it(tmp_path):
    one = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    with watch(one, None, tmp_path, what=["activations"], statistics=["min"]) as watcher:
        one(torch.tensor([-1.0, 1.0]))
        watcher.end_step()
    assert by_name(watcher.rows, "actv")["1.input", 0] == (-1.0,)
    assert by_name(watcher.rows, "actv")["1.output", 0] == (0.0,)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_activations_are_reported_once_and_have_their_gradients(tmp_path, use_reentrant):
    class Checkpointed(nn.Module):
        def __init__(self, checkpoints):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(3, 3), Block(3)
            self.checkpoints = checkpoints

        def forward(self, x):
            x = self.first(x)
            return checkpoint(self.second, x, use_reentrant=use_reentrant) if self.checkpoints else self.second(x)

    reported = []
    for checkpoints in (False, True):
        one = Checkpointed(checkpoints)
        optimizer = adam(one)
        what = ["activations", "activation_gradients"]
        with watch(one, optimizer, tmp_path, what=what, micro_batches=2) as watcher:
            train(one, optimizer, steps=1, micro_batches=2)
        reported.append([by_name(watcher.rows, task) for task in ("actv", "actv_grad")])
        assert not watcher.collection.errors
    assert reported[0] == reported[1]


def test_a_forward_pass_in_inference_mode_hinders_none_after_it(tmp_path):
    one = nn.Linear(100, 100)
    with watch(one, None, tmp_path, what=["activations"], statistics=STATISTICS) as watcher:
        for is_inference in (True, False):
            with torch.inference_mode(is_inference):
                one(torch.ones(100, 100))
            watcher.end_step()
            assert by_name(watcher.rows, "actv")[".input", 0][0] == 100.0
    assert not watcher.collection.errors


def test_a_module_that_is_evaluated_inside_of_a_training_hides_none_around_it(tmp_path):
    one = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    one[1].eval()
    with watch(one, path=tmp_path, what=["activations", "activation_gradients"], format="api") as watcher:
        one(torch.ones(3, 2)).sum().backward()
        watcher.end_step()
    sides = {".input", ".output", "0.input", "0.output", "2.input", "2.output"}
    assert {row.name for row in watcher.rows if row.task == "actv"} == sides
    assert {row.name for row in watcher.rows if row.task == "actv_grad"} == sides - {".input", "0.input"}


def test_a_module_that_is_called_twice_is_reported_twice(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(self.inner(x))

    one = Twice()
    with watch(one, None, tmp_path, what=["activations"]) as watcher:
        one(torch.randn(2, 3))
        watcher.end_step()
    assert {("inner.input", 0), ("inner[1].input", 0)} < set(by_name(watcher.rows, "actv"))


def test_elements_of_tuples_mappings_and_keywords_are_reported_by_place(tmp_path):
    class Many(nn.Module):
        def forward(self, x, *, mask):
            return {"hidden": x, "rest": (mask, x + mask)}

    one = Many()
    with watch(one, None, tmp_path, what=["activations"]) as watcher:
        one(torch.ones(2), mask=torch.ones(2))
        watcher.end_step()
    names = [name for name, _ in by_name(watcher.rows, "actv")]
    assert names == [".input_0", ".input_mask", ".output_hidden", ".output_rest_0", ".output_rest_1"]


def test_a_model_that_raises_leaves_no_call_open(tmp_path):
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.fails = True

        def forward(self, x):
            if self.fails:
                raise ValueError("bad batch")
            return self.inner(x)

    one = Failing()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path) as watcher:
        with pytest.raises(ValueError, match="bad batch"):
            one(torch.randn(2, 3))
        one.fails = False
        train(one, optimizer, steps=1)
    assert not watcher.collection.errors
    assert ("inner.output", 1) in by_name(watcher.rows, "actv_grad")


def test_an_evaluation_is_not_reported(tmp_path):
    one = model()
    with watch(one, None, tmp_path) as watcher:
        one.eval()(torch.randn(2, 3))
        watcher.end_step()
    assert watcher.rows == []
