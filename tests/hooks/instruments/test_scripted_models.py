"""A model that ``torch.jit.script`` compiles while an instrument looks at it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import record
from tests.support.trainings.instruments import INSTRUMENTS
from tests.support.trainings.residual import model

# Torch warns of it from some version on.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

X = torch.ones(2, 4)


def doubled(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
    return (given[0] * 2,)


def negated(module: nn.Module, given: tuple[Tensor], output: Tensor) -> Tensor:
    return -output


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_model_is_scripted_under_every_instrument(name, tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plain = torch.jit.script(net)
    expected = net(X).detach()
    with INSTRUMENTS[name](tmp_path, net, optimizer):
        before = torch.jit.script(net)
        net(X).sum().backward()
        after = torch.jit.script(net)
        for scripted in (before, after):
            assert scripted.inlined_graph.str() == plain.inlined_graph.str()
            # The types are the same, to which hooks belong.
            assert scripted._c._type() == plain._c._type()
            assert torch.equal(scripted(X), expected)


def test_the_model_goes_on_being_recorded_and_what_was_scripted_is_not(tmp_path, records):
    net = model()
    with record(tmp_path / "d", "L0", model=net), torch.no_grad():
        net(X)
        torch.jit.script(net)(X)
        net(X)
    assert [one for one in records(tmp_path / "d") if "Linear" in one] == [
        "Module.0.inner.Linear.forward.0",
        "Module.2.Linear.forward.0",
        "Module.0.inner.Linear.forward.1",
        "Module.2.Linear.forward.1",
    ]


def test_hooks_of_the_program_are_scripted(tmp_path):
    net = model()
    net[0].register_forward_pre_hook(doubled)
    expected = torch.jit.script(copy.deepcopy(net))(X)
    with record(tmp_path / "d", "L0", model=net):
        handle = net[0].register_forward_hook(negated)
        assert torch.equal(torch.jit.script(net)(X), net(X))
        assert not torch.equal(net(X), expected)
        handle.remove()
        assert torch.equal(torch.jit.script(net)(X), expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_is_scripted(tmp_path, copied):
    net = model()
    with record(tmp_path / "d", "L0", model=net):
        other = copied(copied(net))
        assert torch.equal(torch.jit.script(other)(X), other(X))
