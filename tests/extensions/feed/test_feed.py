"""Modules of a running PyTorch program get the inputs that a dump recorded for them."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import torch
from torch import nn

from msprobe_hooks import feed
from tests.support.trainings.fed import Model, assert_equal, batch, inputs_of, inputs_of_last, recording


def test_each_call_of_a_named_module_gets_the_inputs_of_that_call(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"], model=model) as fed:
        model(batch(0))
        model(batch(1))
    assert_equal(inputs_of(model), inputs_of_last(0, 1))
    assert fed.calls == {"layers.2": 2}


def test_the_tensors_of_the_last_fed_call_do_not_stay_alive(golden):
    model, passed = Model(), []
    model.layers[1].register_forward_hook(lambda _, __, output: passed.append(weakref.ref(output)))
    with feed(golden, ["layers.2"], model=model):
        model(batch(0))
    del model
    gc.collect()
    assert [reference() for reference in passed] == [None]


def test_modules_that_are_not_named_get_what_the_program_gives_them(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"], model=model):
        model(batch(0))
    alone(batch(0))
    assert_equal(inputs_of(model, 1), inputs_of(alone, 1))


def test_the_hooks_are_gone_afterwards(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"]):
        model(batch(0))
    assert torch.equal(model(batch(0)), alone(batch(0)))
    assert not model.layers[2]._forward_pre_hooks


def test_without_a_model_the_outermost_module_that_runs_is_it(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
    assert_equal(inputs_of(model), inputs_of_last(0))
    assert fed.calls == {"layers.2": 1}


@pytest.mark.parametrize("name", ["layers.2", "layers.[12]", "*2", "Module.layers.2.Block", "Module.layers.2"])
def test_a_module_has_several_names(golden, name):
    model = Model(broken=True)
    with feed(golden, [name], model=model) as fed:
        model(batch(0))
    assert_equal(inputs_of(model), inputs_of_last(0))
    assert fed.calls["layers.2"] == 1


def test_the_name_of_one_call_feeds_that_call_alone(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["Module.layers.2.Block.forward.1"], model=model) as fed:
        model(batch(0))
        model(batch(1))
    alone(batch(0))
    assert_equal(inputs_of(model), [*inputs_of(alone), *inputs_of_last(1)])
    assert not fed.is_partial


def test_inputs_follow_the_steps_of_the_recording_that_runs(golden, tmp_path):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]), recording(tmp_path / "target", model) as session:
        model(batch(0))
        session.step()
        model(batch(2))
    assert_equal(inputs_of(model), inputs_of_last(0, 2))


def test_without_a_recording_the_program_counts_the_steps(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        fed.step()
        model(batch(2))
    assert_equal(inputs_of(model), inputs_of_last(0, 2))


def test_a_chosen_step_is_fed_whatever_step_runs(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"], step=1):
        model(batch(2))
    assert_equal(inputs_of(model), inputs_of_last(2))


@pytest.mark.parametrize("part", ["step1", "step1/rank", "step1/rank/dump.json"])
def test_the_folder_of_a_step_is_fed_whatever_step_runs(golden, part):
    model = Model(broken=True)
    with feed(golden / part, ["layers.2"]):
        model(batch(2))
    assert_equal(inputs_of(model), inputs_of_last(2))


def test_a_single_process_reads_the_folder_that_msprobe_names_by_its_number(golden):
    for step in (0, 1):
        (golden / f"step{step}" / "rank").rename(golden / f"step{step}" / f"proc{100 + step}")
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        fed.step()
        model(batch(2))
    assert_equal(inputs_of(model), inputs_of_last(0, 2))


def test_a_list_of_one_model_adds_no_index_to_a_path(tmp_path):
    right, wrong = Model(), Model(broken=True)
    with recording(tmp_path / "golden", [right]):
        right(batch(0))
    with feed(tmp_path / "golden", ["layers.2"]):
        wrong(batch(0))
    assert_equal(inputs_of(wrong), inputs_of_last(0))


def test_of_two_models_with_the_same_paths_the_first_is_fed_and_the_other_named(golden):
    model, other, alone = Model(broken=True), Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        other(batch(1))
    alone(batch(1))
    assert_equal([*inputs_of(model), *inputs_of(other)], [*inputs_of_last(0), *inputs_of(alone)])
    assert "layers.2 of a second model; pass the model that is meant as model=" in str(fed)


def test_a_step_that_the_dump_lacks_is_named(golden):
    model = Model()
    with feed(golden, ["layers.2"]) as fed:
        for _ in range(3):
            model(batch(0))
            fed.step()
    assert f"not fed: step 2, as {golden} has step 0, 1" in str(fed)


def test_a_call_beyond_the_recorded_ones_is_named(golden):
    model = Model()
    with feed(golden, ["layers.2"]) as fed:
        for _ in range(4):
            model(batch(0))
    assert "not fed: calls of layers.2 after the 2 that were recorded (2 times)" in str(fed)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_call_gets_the_inputs_of_its_first_time(golden, reentrant):
    model = Model(broken=True)
    model.reentrant = reentrant
    first, second = inputs_of_last(0, 1)
    with feed(golden, ["layers.2"]):
        losses = [model(batch(seed, requires_grad=True)).sum() for seed in (0, 1)]
        sum(losses).backward()
    # The backward pass goes through the later batch first.
    assert_equal(inputs_of(model), [first, second, second, first])
    right = Model()
    for x in (first, second):
        right.layers[2](x).sum().backward()
    assert torch.allclose(model.layers[2].fc.weight.grad, right.layers[2].fc.weight.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_micro_batches_are_distinguished_in_any_order(golden, reentrant):
    model = Model(broken=True)
    model.reentrant = reentrant
    first, second = inputs_of_last(0, 1)
    with feed(golden, ["layers.2"]):
        losses = [model(batch(seed, requires_grad=True)).sum() for seed in (0, 1)]
        for loss in losses:
            loss.backward()
    assert_equal(inputs_of(model), [first, second, first, second])


def test_recomputed_calls_of_a_dump_are_not_counted(tmp_path):
    model = Model()
    model.reentrant = False
    with recording(tmp_path / "golden", model):
        for seed in (0, 1):
            model(batch(seed, requires_grad=True)).sum().backward()
    plain = Model(broken=True)
    with feed(tmp_path / "golden", ["layers.2"]):
        plain(batch(0))
        plain(batch(1))
    assert_equal(inputs_of(plain), inputs_of_last(0, 1))


def test_modules_that_never_ran_or_are_not_in_the_dump_are_reported_at_the_end(golden, caplog):
    model = Model()
    with caplog.at_level(logging.INFO, "msprobe_hooks"), feed(golden, ["layers.1", "layers.2", "layers.7"]):
        model.layers[1](batch(0))
    (line,) = [each for each in caplog.records if "fed" in each.message]
    assert line.levelno == logging.WARNING
    assert "layers.7 is not in" in line.message
    assert "never ran, or only in compiled code: layers.1, layers.2; pass the model as model=" in line.message


def test_wrappers_add_nothing_to_a_path(golden):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        Wrapper(Wrapper(model))(batch(0))
    assert_equal(inputs_of(model), inputs_of_last(0))
    assert fed.calls == {"layers.2": 1}


@pytest.mark.slow
def test_compiled_code_is_left_alone_and_said_to_be(golden):
    model = Model(broken=True)
    compiled = torch.compile(model, backend="eager")
    with feed(golden, ["layers.2"], model=model) as fed:
        compiled(batch(0))
    assert "never ran, or only in compiled code: layers.2" in str(fed)


def test_a_chosen_rank_is_fed_and_without_a_choice_the_own_one_is_missed(tmp_path):
    model = Model()
    other = tmp_path / "two"
    for rank, seed in ((0, 0), (1, 1)):
        with recording(other / f"of{rank}", model):
            model(batch(seed))
        target = other / "golden" / "step0" / f"rank{rank}"
        target.parent.mkdir(parents=True, exist_ok=True)
        (other / f"of{rank}" / "step0" / "rank").rename(target)
    wrong = Model(broken=True)
    with feed(other / "golden", ["layers.2"], rank=1):
        wrong(batch(1))
    assert_equal(inputs_of(wrong), inputs_of_last(1))
    with feed(other / "golden", ["layers.2"]) as fed:
        wrong(batch(1))
    assert "has step 0 and rank 0, 1" in str(fed)
