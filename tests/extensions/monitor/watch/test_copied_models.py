"""A monitored model and optimizer that are copied or pickled."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from msprobe_hooks import watch
from tests.support.dumps.watched import activation_rows

X = torch.ones(2, 4)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


def test_the_activations_of_a_copy_are_not_monitored_as_those_of_the_model(tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, tmp_path, what=["activations"], statistics=["max"]):
        average = copy.deepcopy(net)
        net(X).sum().backward()
        average(X)
        optimizer.step()
    rows = activation_rows(tmp_path)
    assert {row["micro_step"] for row in rows} == {"0"}
    assert len(rows) == len({row["name"] for row in rows})


class Around:
    """An optimizer around another one, which calls no hooks."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.steps = optimizer, 0

    def step(self) -> None:
        self.steps += 1
        self.optimizer.step()


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_the_copy_of_a_watched_optimizer_steps_itself(tmp_path, copied, is_replaced):
    net = model()
    around = Around(torch.optim.SGD(net.parameters(), lr=0.1))
    if is_replaced:
        around.step = around.step
    with watch(net, around, tmp_path):
        other = copied(around)
        other.step()
    assert (around.steps, other.steps) == (0, 1)
