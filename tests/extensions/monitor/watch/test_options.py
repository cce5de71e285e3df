"""What ``watch`` does not take: options, optimizers and targets."""

from __future__ import annotations

import math

import pytest
import torch

from msprobe_hooks import ConfigError, watch
from tests.support.dumps.training import adam, model


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"what": []}, r"what is \[\]; allowed: at least one of activations"),
        ({"what": ["weights"]}, "what is 'weights'; allowed: activations"),
        ({"statistics": ["median"]}, "statistics is 'median'; allowed: norm"),
        ({"every": 0}, "every is 0; allowed: an integer >= 1"),
        ({"interval": 2}, r"watch\(\) has no option 'interval'; known: collect_times"),
        ({"targets": {"a": {"inputs": "tensor"}}}, r"targets.a has no key 'inputs'; did you mean 'input'\?"),
        ({"targets": {"a": {"input": "tuple[2]:2"}}}, r"targets.a.input is 'tuple\[2\]:2'; allowed: tensor, tuple"),
        ({"eps": math.nan}, "eps is nan; allowed: a number >= 0"),
        ({"micro_batches": 0}, "micro_batches is 0; allowed: an integer >= 1"),
        ({"first_step": "3"}, "first_step is '3'; allowed: an integer >= 0"),
    ],
)
def test_a_wrong_option_is_reported_with_what_is_allowed(tmp_path, options, reported):
    one = model()
    with pytest.raises(ConfigError, match=reported), watch(one, adam(one), tmp_path, **options):
        pass


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"evry": 3}, r"watch\(\) has no option 'evry'; did you mean 'every'\?"),
        ({"what": ["gradient"]}, r"what is 'gradient'; allowed: .*; did you mean 'gradients'\?"),
        ({"format": "parket"}, r"format is 'parket'; allowed: csv, .*; did you mean 'parquet'\?"),
    ],
)
def test_a_misspelt_option_is_reported_with_the_closest_one(tmp_path, options, hint):
    one = model()
    with pytest.raises(ConfigError, match=hint), watch(one, adam(one), tmp_path, **options):
        pass


def test_what_is_no_optimizer_is_refused(tmp_path):
    reported = "optimizer is 'str'; allowed: an optimizer, with a method step"
    with pytest.raises(ConfigError, match=reported), watch(model(), "sgd", tmp_path):
        pass


def test_an_optimizer_that_calls_no_hooks_is_refused(tmp_path):
    class Uninitialized(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.step()

    one = model()
    reported = (
        "optimizer is 'Uninitialized'; allowed: an optimizer that calls hooks .* for a wrapper, the wrapped optimizer"
    )
    with pytest.raises(ConfigError, match=reported), watch(one, Uninitialized(adam(one)), tmp_path):
        pass


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    with (
        pytest.raises(
            ConfigError,
            match="optimizer is 'AdamW'; allowed: an optimizer of the model's parameters, of which it has none",
        ),
        watch(model(), adam(model()), tmp_path),
    ):
        pass


def test_a_target_that_is_not_there_is_reported(tmp_path, caplog):
    one = model()
    with watch(one, adam(one), tmp_path, targets={"5": {"input": "tensor"}}, format="api"):
        assert "targets: not a module or parameter of the model: '5'" in caplog.text
