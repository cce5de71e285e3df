"""A training that is watched: its bits stay the same, nothing of the watcher stays, and no error reaches it."""

from __future__ import annotations

import copy
import gc
import logging

import pytest
import torch
from torch import nn

from msprobe_hooks import watch
from msprobe_hooks.extensions.monitor.series.reader import open_run, rank_folders
from msprobe_hooks.extensions.monitor.watch.config import STATISTICS, WHAT
from tests.support.dumps.training import adam, by_name, model, train

EVERYTHING = WHAT


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


def test_the_gradients_of_lazy_modules_are_monitored_from_their_first_step_on(tmp_path):
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(3, 6), nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    with watch(one, optimizer, tmp_path, what=["gradients"], statistics=["norm"]) as watcher:
        for step in range(2):
            optimizer.zero_grad()
            one(torch.ones(4, 3)).square().mean().backward()
            norms = {name: parameter.grad.norm().item() for name, parameter in one.named_parameters()}
            optimizer.step()
            found = {row.name: row.values[0] for row in watcher.rows if row.task == "grad_unreduced"}
            assert found == pytest.approx(norms), step
    assert not watcher.collection.errors
    assert not nn.modules.module._global_forward_hooks


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_a_scripted_module_which_takes_no_hooks_is_reported_and_the_others_are_monitored(tmp_path, caplog):
    one = nn.Sequential(nn.Linear(3, 3), torch.jit.script(nn.Linear(3, 2)))
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, what=["activations"]) as watcher:
        one(torch.ones(4, 3)).mean().backward()
        optimizer.step()
        assert {row.name for row in watcher.rows} >= {"0.input", "0.output"}
    assert "not monitored: module '1': RuntimeError: register_forward_pre_hook is not supported" in caplog.text


def test_two_models_with_optimizers_of_one_class_do_not_mix(tmp_path):
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    one, other = adam(first), adam(second)
    with watch(first, one, tmp_path / "a") as a, watch(second, other, tmp_path / "b") as b:
        train(first, one, steps=3)
        train(second, other, steps=1)
    assert (a.step, b.step) == (3, 1)
    assert by_name(a.rows, "grad_reduced")["weight", None] != by_name(b.rows, "grad_reduced")["weight", None]


def test_chunks_of_a_pipeline_are_distinguished(tmp_path):
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
    reported = {key.name: run.read(key).values[-1] for key in run.keys if key.task == "grad_reduced"}
    assert reported == pytest.approx(
        {name: values[0] for (name, _), values in by_name(watcher.rows, "grad_reduced").items()}
    )


def test_what_goes_wrong_is_reported_once_and_does_not_reach_the_training(tmp_path, monkeypatch, caplog):
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
            "not monitored: module '0': RuntimeError: no such kernel"
        ) == 1


def test_files_that_cannot_be_written_do_not_end_the_training(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, steps_per_file=1) as watcher:
        watcher.folder.rmdir()
        train(one, optimizer, steps=2)
    assert watcher.collection.errors["the rows of a step"] == 2


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


def test_targets_are_all_that_is_watched(tmp_path):
    one = model()
    optimizer = adam(one)
    with watch(one, optimizer, tmp_path, targets={"0": {"output": "tensor"}}, format="api") as watcher:
        train(one, optimizer, steps=1)
    assert {(row.task, row.name) for row in watcher.rows if row.task.startswith("actv")} == {("actv", "0.output")}
    assert {row.name for row in watcher.rows if row.task == "grad_reduced"} == {"0.weight", "0.bias"}
