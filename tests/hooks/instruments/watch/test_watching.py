from __future__ import annotations

import copy
import gc
import logging
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import ConfigError, watch
from msprobe_hooks.instruments.series.reading import open_run, rank_folders
from msprobe_hooks.instruments.watch.names import STATISTICS, WHAT

EVERYTHING = WHAT


class Block(nn.Module):
    """A residual layer: its input is used twice."""

    def __init__(self, width=6):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x, scale=1.0):
        return x + scale * torch.relu_(self.linear(self.norm(x)))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), Block(), nn.Dropout(0.1), Block(), nn.Linear(6, 2))


def train(one, optimizer, steps=3, micro_batches=1):
    """Return the losses of a few steps; batches are the same in every call."""
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            loss = one(torch.randn(4, 3)).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses


def adam(one):
    return torch.optim.AdamW(one.parameters(), lr=0.01)


def by_name(rows, task):
    """Return the rows of a task by name and micro step."""
    return {(row.name, row.micro_step): row.values for row in rows if row.task == task}


def test_a_watched_training_gives_the_same_bits(tmp_path):
    plain, watched = model(), model()
    optimizer = adam(watched)
    expected = train(plain, adam(plain), micro_batches=2)
    with watch(watched, optimizer, tmp_path, what=EVERYTHING, statistics=STATISTICS, micro_batches=2) as watcher:
        assert train(watched, optimizer, micro_batches=2) == expected
    assert not watcher.collection.errors
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one.grad, other.grad)


def test_no_hook_is_left_behind(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=EVERYTHING):
        train(one, optimizer)
    for module in one.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in one.parameters())


def test_gradients_of_activations_are_those_of_full_backward_hooks(tmp_path):
    one = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))
    told = {}
    for name, module in one.named_modules():

        def hook(_, grad_inputs, grad_outputs, name=name):
            for side, gradients in (("input", grad_inputs), ("output", grad_outputs)):
                if gradients[0] is not None:
                    told[f"{name}.{side}", 0] = gradients[0].double().norm().item()

        module.register_full_backward_hook(hook)
    with watch(one, None, tmp_path, what=["activation_gradients"]) as watcher:
        one(torch.randn(4, 3, requires_grad=True)).square().mean().backward()
        watcher.end_step()
    found = by_name(watcher.rows, "actv_grad")
    assert {key: values[0] for key, values in found.items()} == pytest.approx(told, rel=1e-6)


def test_gradients_that_meet_are_told_apart_by_module(tmp_path):
    one = Block(3)
    x = torch.randn(4, 3, requires_grad=True)
    with watch(one, None, tmp_path, what=["activation_gradients"]) as watcher:
        one(x).sum().backward()
        watcher.end_step()
    found = {name: values[0] for (name, _), values in by_name(watcher.rows, "actv_grad").items()}
    # Of the block's input the residual's share and the norm's; of the norm's input its own alone.
    assert found["norm.input"] == pytest.approx((x.grad - 1).norm().item(), rel=1e-4)
    assert found[".input"] == pytest.approx(x.grad.norm().item(), rel=1e-4)


def test_gradients_and_parameters_are_told_as_the_optimizer_has_them(tmp_path):
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


def test_each_micro_batch_has_its_gradients_where_that_is_asked_for(tmp_path):
    one = nn.Linear(3, 2)
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["micro_batch_gradients", "activations"], micro_batches=2) as watcher:
        train(one, optimizer, steps=1, micro_batches=2)
    assert set(by_name(watcher.rows, "grad_unreduced")) == {
        (name, number) for name in ("weight", "bias") for number in (0, 1)
    }
    assert set(by_name(watcher.rows, "actv")) == {(name, number) for name in (".input", ".output") for number in (0, 1)}


def test_an_input_is_measured_before_the_module_changes_it(tmp_path):
    one = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    with watch(one, None, tmp_path, what=["activations"], statistics=["min"]) as watcher:
        one(torch.tensor([-1.0, 1.0]))
        watcher.end_step()
    assert by_name(watcher.rows, "actv")["1.input", 0] == (-1.0,)
    assert by_name(watcher.rows, "actv")["1.output", 0] == (0.0,)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_activations_are_told_once_and_have_their_gradients(tmp_path, use_reentrant):
    class Checkpointed(nn.Module):
        def __init__(self, checkpoints):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(3, 3), Block(3)
            self.checkpoints = checkpoints

        def forward(self, x):
            x = self.first(x)
            return checkpoint(self.second, x, use_reentrant=use_reentrant) if self.checkpoints else self.second(x)

    told = []
    for checkpoints in (False, True):
        one = Checkpointed(checkpoints)
        optimizer = adam(one)
        what = ["activations", "activation_gradients"]
        with watch(one, optimizer, tmp_path, what=what, micro_batches=2) as watcher:
            train(one, optimizer, steps=1, micro_batches=2)
        told.append([by_name(watcher.rows, task) for task in ("actv", "actv_grad")])
        assert not watcher.collection.errors
    assert told[0] == told[1]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_of_layers_around_a_checkpoint_are_told_in_backward_order(tmp_path, use_reentrant):
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


def test_a_module_that_is_called_twice_is_told_twice(tmp_path):
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


def test_elements_of_tuples_mappings_and_keywords_are_told_by_place(tmp_path):
    class Many(nn.Module):
        def forward(self, x, *, mask):
            return {"hidden": x, "rest": (mask, x + mask)}

    one = Many()
    with watch(one, None, tmp_path, what=["activations"]) as watcher:
        one(torch.ones(2), mask=torch.ones(2))
        watcher.end_step()
    names = [name for name, _ in by_name(watcher.rows, "actv")]
    assert names == [".input_0", ".input_mask", ".output_hidden", ".output_rest_0", ".output_rest_1"]


def test_two_models_with_optimizers_of_one_class_do_not_mix(tmp_path):
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    one, other = adam(first), adam(second)
    with watch(first, one, tmp_path / "a") as a, watch(second, other, tmp_path / "b") as b:
        train(first, one, steps=3)
        train(second, other, steps=1)
    assert (a.step, b.step) == (3, 1)
    assert by_name(a.rows, "grad_reduced")["weight", None] != by_name(b.rows, "grad_reduced")["weight", None]


def test_an_optimizer_tells_of_its_own_parameters_only(tmp_path):
    one = nn.ModuleDict({"generator": nn.Linear(3, 2), "critic": nn.Linear(2, 1)})
    optimizer = adam(one["critic"])
    with watch(one, optimizer, tmp_path, what=["gradients"]) as watcher:
        one["critic"](one["generator"](torch.randn(4, 3))).mean().backward()
        optimizer.step()
    assert {name for name, _ in by_name(watcher.rows, "grad_reduced")} == {"critic.weight", "critic.bias"}


def test_chunks_of_a_pipeline_are_told_apart(tmp_path):
    chunks = [nn.Linear(3, 3), nn.Linear(3, 2)]
    optimizer = adam(nn.ModuleList(chunks))
    with watch(chunks, optimizer, tmp_path) as watcher:
        chunks[1](chunks[0](torch.randn(4, 3))).mean().backward()
        optimizer.step()
    for task in ("actv", "actv_grad", "grad_unreduced", "grad_reduced"):
        assert {row.vpp_stage for row in watcher.rows if row.task == task} == {0, 1}


def test_steps_that_are_not_wanted_bring_nothing(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, start_step=2, every=3, collect_times=2) as watcher:
        train(one, optimizer, steps=12)
    run = open_run(watcher.folder)
    assert run.read(run.keys[0]).steps.tolist() == [2, 5]


def test_what_was_watched_can_be_read_again(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["gradients"], ndigits=12, steps_per_file=2) as watcher:
        train(one, optimizer, steps=3)
    run = open_run(rank_folders(tmp_path)[0])
    told = {key.name: run.read(key).values[-1] for key in run.keys if key.task == "grad_reduced"}
    assert told == pytest.approx(
        {name: values[0] for (name, _), values in by_name(watcher.rows, "grad_reduced").items()}
    )


def test_what_goes_wrong_is_told_once_and_does_not_reach_the_training(tmp_path, monkeypatch, caplog):
    one = model()
    optimizer = adam(one)
    expected = train(copy.deepcopy(one), adam(copy.deepcopy(one)), steps=1)
    with watch(one, optimizer, tmp_path) as watcher:

        def measure(_):
            raise RuntimeError("no such kernel")

        monkeypatch.setattr(watcher.collection.meter, "measure", measure)
        with caplog.at_level(logging.WARNING):
            assert train(one, optimizer, steps=1) == expected
        assert [record.message for record in caplog.records].count(
            "not watched: module '0': RuntimeError: no such kernel"
        ) == 1


def test_files_that_cannot_be_written_do_not_end_the_training(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, steps_per_file=1) as watcher:
        watcher.folder.rmdir()
        train(one, optimizer, steps=2)
    assert watcher.collection.errors["what a step brought"] == 2


def test_nothing_is_kept_from_step_to_step(tmp_path):
    one = model()
    optimizer = adam(one)

    def tensors():
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    with watch(one, optimizer, tmp_path, what=EVERYTHING, statistics=STATISTICS, steps_per_file=1):
        train(one, optimizer, steps=2)
        before = tensors()
        train(one, optimizer, steps=5)
        assert tensors() == before


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


def test_an_evaluation_is_not_told(tmp_path):
    one = model()
    with watch(one, None, tmp_path) as watcher:
        one.eval()(torch.randn(2, 3))
        watcher.end_step()
    assert watcher.rows == []


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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"what": ["weights"]}, "what is 'weights'; allowed: some of activations"),
        ({"statistics": ["median"]}, "statistics is 'median'; allowed: some of norm"),
        ({"every": 0}, "every is 0; allowed: a whole number"),
        ({"interval": 2}, "interval is 2; allowed: one of the options"),
        ({"targets": {"a": {"inputs": "tensor"}}}, "targets.a is 'inputs'; allowed: the keys input, output"),
        ({"targets": {"a": {"input": "tuple[2]:2"}}}, r"targets.a.input is 'tuple\[2\]:2'; allowed: tensor, tuple"),
        ({"eps": math.nan}, "eps is nan; allowed: a number >= 0"),
        ({"micro_batches": 0}, "micro_batches is 0; allowed: a whole number >= 1"),
        ({"first_step": "3"}, "first_step is '3'; allowed: a whole number >= 0"),
    ],
)
def test_a_wrong_option_is_told_with_what_is_allowed(tmp_path, options, told):
    one = model()
    with pytest.raises(ConfigError, match=told), watch(one, adam(one), tmp_path, **options):
        pass


def test_what_is_no_optimizer_is_refused(tmp_path):
    told = "optimizer is 'str'; allowed: an optimizer, which has a method step"
    with pytest.raises(ConfigError, match=told), watch(model(), "sgd", tmp_path):
        pass


class Around:
    """An optimizer around another, without hooks."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_step_that_somebody_else_replaced_stays_so(tmp_path, is_first):
    def count_steps():
        step = optimizer.step

        def counting():
            counted.append(1)
            step()

        optimizer.step = counting

    counted = []
    one = nn.Linear(2, 1)
    optimizer = Around(adam(one))
    if is_first:
        count_steps()
    with watch(one, optimizer, tmp_path, what=["parameters"]) as watcher:
        if not is_first:
            count_steps()
        optimizer.step()
    optimizer.step()
    assert len(counted) == 2
    assert watcher.step == 1


def test_a_method_that_was_replaced_is_the_optimizer_s_own_again(tmp_path):
    one = nn.Linear(2, 1)
    optimizer = Around(adam(one))
    with watch(one, optimizer, tmp_path, what=["parameters"]):
        optimizer.step()
    assert "step" not in vars(optimizer)


def test_an_optimizer_that_calls_no_hooks_is_refused(tmp_path):
    class Uninitialized(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.step()

    one = model()
    told = "optimizer is 'Uninitialized'; allowed: one that calls hooks .* put around another, that other"
    with pytest.raises(ConfigError, match=told), watch(one, Uninitialized(adam(one)), tmp_path):
        pass


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match="optimizer is 'AdamW'; allowed: one that steps parameters of the model"),
        watch(model(), adam(model()), tmp_path),
    ):
        pass


def test_targets_are_all_that_is_watched(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, targets={"0": {"output": "tensor"}}, format="api") as watcher:
        train(one, optimizer, steps=1)
    assert {(row.task, row.name) for row in watcher.rows if row.task.startswith("actv")} == {("actv", "0.output")}
    assert {row.name for row in watcher.rows if row.task == "grad_reduced"} == {"0.weight", "0.bias"}


def test_a_target_that_is_not_there_is_told(tmp_path, caplog):
    one = model()
    with watch(one, adam(one), tmp_path, targets={"5": {"input": "tensor"}}, format="api"):
        assert "targets names '5', which is no module or parameter of the model" in caplog.text
