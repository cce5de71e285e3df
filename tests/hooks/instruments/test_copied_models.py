"""A model that is copied or pickled while an instrument looks at it."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from msprobe_hooks import record
from tests.support.trainings.instruments import INSTRUMENTS

X = torch.ones(2, 4)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_model_is_pickled_and_copied_under_every_instrument(name, tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected = net(X)
    with INSTRUMENTS[name](tmp_path, net, optimizer):
        saved = io.BytesIO()
        torch.save(net, saved)
        pickled = pickle.dumps(net)
        again = pickle.dumps(pickle.loads(pickled))
        copied = [copy.deepcopy(net), pickle.loads(pickled), pickle.loads(again)]
        saved.seek(0)
        copied += [copy.deepcopy(copied[0]), torch.load(saved, weights_only=False)]
        pickle.dumps(optimizer)
        copy.deepcopy(optimizer)
    assert b"msprobe" not in pickled
    for one in copied:
        assert torch.equal(one(X), expected)


def test_the_calls_of_a_copy_are_not_recorded_under_the_names_of_the_model(tmp_path, records):
    net = model()
    with record(tmp_path / "d", "L0", model=net):
        for one in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            one(X).sum().backward()
        net(X)
    assert [name for name in records(tmp_path / "d") if "Linear" in name] == [
        "Module.0.Linear.forward.0",
        "Module.2.Linear.forward.0",
    ]


def test_a_saved_variable_is_pickled_without_a_warning(tmp_path):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "d", "debug") as session:
        session.save(x, "x")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(pickle.loads(pickle.dumps(x)), x)


def computed(net: nn.Module, path: Path) -> None:
    torch.save(net(X), path)


@pytest.mark.slow  # a process that loads torch
def test_a_recorded_model_is_passed_to_a_spawned_process(tmp_path):
    net = model()
    with record(tmp_path / "d", "mix", model=net), torch.no_grad():
        process = torch.multiprocessing.get_context("spawn").Process(target=computed, args=(net, tmp_path / "y"))
        process.start()
        process.join()
        assert torch.equal(torch.load(tmp_path / "y"), net(X))
