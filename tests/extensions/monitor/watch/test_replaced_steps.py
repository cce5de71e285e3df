"""An optimizer around another, which calls no hooks: its ``step`` is replaced while it is watched."""

from __future__ import annotations

import pytest
from torch import nn

from msprobe_hooks import watch
from tests.support.dumps.training import adam


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
