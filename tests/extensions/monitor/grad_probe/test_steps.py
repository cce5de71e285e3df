"""Which calls of which optimizers are steps, and which steps are written."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from msprobe_hooks import PrecisionDebugger
from tests.support.trainings.probing import Monitor, model_of, names, parameter, sgd, table


def test_steps_are_calls_of_the_optimizer(monitor: Monitor) -> None:
    model = nn.Linear(3, 1)
    rank, optimizer = monitor(model), sgd(model)
    for batch in range(6):
        model(torch.ones(1, 3)).sum().backward()
        if batch % 3 == 2:
            optimizer.step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_0.csv", "grad_summary_1.csv"]


def test_the_calls_of_two_optimizers_are_counted_apart(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(2.0))
    rank = monitor(model)
    first, second = torch.optim.SGD([model.a], lr=0.1), torch.optim.Adam([model.b])
    for _ in range(2):
        first.step()
        second.step()
    first.step()
    assert [names(rank, step) for step in range(3)] == [["a", "b"], ["a", "b"], ["a"]]


def test_optimizers_of_other_models_are_not_counted(monitor: Monitor) -> None:
    model, other = model_of(w=parameter(1.0)), model_of(w=parameter(2.0))
    rank = monitor(model)
    for one in (other, other, model):
        sgd(one).step()
    assert [path.name for path in rank.glob("*.csv")] == ["grad_summary_0.csv"]
    assert table(rank)[0]["max"] == "1.0"


def test_an_optimizer_within_another_is_not_counted_again(monitor: Monitor) -> None:
    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            inner.step()

    model = model_of(a=parameter(1.0), b=parameter(2.0))
    rank = monitor(model)
    inner, outer = torch.optim.SGD([model.a], lr=0.1), Outer(model.parameters(), lr=0.1)
    outer.step()
    outer.step()
    assert [names(rank, step) for step in range(2)] == [["a", "b"], ["a", "b"]]
    assert not (rank / "grad_summary_2.csv").exists()


def test_an_optimizer_that_takes_anothers_place_counts_on(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    for _ in range(2):
        sgd(model).step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_0.csv", "grad_summary_1.csv"]


def test_an_optimizer_of_copies_counts_where_it_is_named(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0, dtype=torch.bfloat16))
    copies = torch.optim.Adam([parameter(3.0)])
    rank = monitor(model, copies)
    copies.step()
    assert table(rank)[0]["max"] == "1.0"


def test_only_the_listed_steps_are_written(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank, optimizer = monitor(model, step=[1, "3-4"]), sgd(model)
    for _ in range(4):
        optimizer.step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_1.csv", "grad_summary_3.csv"]


def test_a_resumed_training_goes_on_with_its_step(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    PrecisionDebugger.set_init_step(7)
    sgd(model).step()
    assert names(rank, 7) == ["w"]
