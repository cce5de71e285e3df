"""Hooks around collectives: what a rank gives and gets, and nothing that fails in them reaches the training."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.distributed as dist

from msprobe_hooks import watch
from tests.support.dumps.training import adam, model
from tests.support.requirements import require

require(dist.is_available(), "torch.distributed")


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_what_a_rank_gives_is_measured_too(tmp_path):
    net = model()
    optimizer = adam(net)
    with watch(net, optimizer, tmp_path / "w", what=["collectives"], statistics=["max"]) as watcher:
        dist.all_reduce(torch.tensor([3.0]))
        optimizer.step()
    assert {row.name: row.values for row in watcher.rows} == {
        "all_reduce/pre_0": (3.0,),
        "all_reduce/post_0": (3.0,),
    }


class Odd:
    """A result that cannot be asked for anything."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} yet")


def test_a_result_that_cannot_be_looked_at_reaches_the_program(tmp_path, caplog):
    from msprobe_hooks.extensions.monitor.watch.optimizers import _calls

    odd = Odd()
    net = model()
    with watch(net, adam(net), tmp_path, what=["collectives"]), caplog.at_level(logging.WARNING):
        assert _calls._around("all_reduce")(lambda: odd, (), {}) is odd
    assert "not monitored: collectives: RuntimeError: no wait yet" in caplog.text


def test_a_work_of_two_calls_is_forgotten_without_an_error():
    from msprobe_hooks.torch.collective_hooks import CollectiveHooks

    class Work:
        def wait(self):
            pass

    work, ended = Work(), []
    hooks = CollectiveHooks(lambda name: None, ended.append, lambda *_: None, most_waiting=1)
    for call in range(3):
        assert hooks.returned([work, Work()], call)
    assert ended == []


def test_an_optimizer_inside_another_is_found_where_sharding_keeps_it():
    from msprobe_hooks.extensions.monitor.watch.optimizers import OptimizerState
    from msprobe_hooks.extensions.monitor.watch.parameters import Weight

    class Sharding:
        def __init__(self, inner):
            self.optim, self.param_groups, self.state = inner, inner.param_groups, {}

    net = model()
    inner = adam(net)
    net(torch.ones(2, 3)).sum().backward()
    inner.step()
    weights = [Weight(0, name, one, lambda: None) for name, one in net.named_parameters()]
    assert len(list(OptimizerState(Sharding(inner)).moments(weights))) == len(weights)
