"""The key ``load`` of msprobe's ``config.json``, followed by a PrecisionDebugger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import ConfigError, PrecisionDebugger, record


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(x)
        return x + 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Two steps: the second layer is given 1 and 11."""
    model = Model()
    with record(tmp_path / "golden", level="L0", task="tensor", model=model) as session:
        model(torch.zeros(2))
        session.step()
        model(torch.full((2,), 10.0))
    return tmp_path / "golden"


@pytest.fixture
def debug(tmp_path: Path, golden: Path) -> Iterator[Callable[..., PrecisionDebugger]]:
    """Makes the process's debugger of a file with the key ``load``, and ends it after the test."""

    def make(task: str = "tensor", **load: Any) -> PrecisionDebugger:
        given = {"path": str(golden), "modules": ["Module.second.Layer.forward.0"]} | load
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"task": task, "level": "L0", "dump_path": str(tmp_path / "dump"), "load": given}))
        return PrecisionDebugger(config_path=config)

    yield make
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()


def run(debugger: PrecisionDebugger, model: Model, steps: int = 2) -> list[float]:
    """Run steps, the inputs being 100, and return what the second layer was given."""
    for _ in range(steps):
        debugger.start(model)
        model(torch.full((2,), 100.0))
        debugger.stop()
        debugger.step()
    return [x[0].item() for x in model.second.given]


def test_the_named_call_is_fed_in_each_step_and_nothing_is_recorded(debug, tmp_path):
    assert run(debug(), Model()) == [1, 11]
    assert not (tmp_path / "dump").exists()


def test_with_dump_after_load_what_was_fed_is_recorded(debug, tmp_path, records):
    assert run(debug(dump_after_load=True), Model()) == [1, 11]
    record = records(tmp_path / "dump", 1)["Module.second.Layer.forward.0"]
    assert record["input_args"][0]["Max"] == 11
    assert record["details"]["fed"]["record"] == "Module.second.Layer.forward.0"


def test_only_the_listed_steps_are_fed(debug):
    assert run(debug(step=[1]), Model()) == [101, 11]


def test_nothing_is_fed_in_ranks_that_are_not_listed(debug):
    assert run(debug(rank=["3-4"]), Model()) == [101, 101]


def test_nothing_is_fed_after_stop(debug):
    debugger, model = debug(), Model()
    run(debugger, model)
    assert torch.equal(model(torch.full((2,), 100.0)), torch.full((2,), 102.0))


def test_the_end_of_the_process_says_what_was_fed(debug, golden, capsys):
    run(debug(), Model())
    PrecisionDebugger._instance._finish()
    assert capsys.readouterr().err == (
        f"msprobe_hooks: fed 2 calls of 1 module from {golden}; 1 replaced tensor differed from the recorded, first "
        "second input.0 (x) by 1.0e+02 of the greatest value\n"
    )


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        ({"modules": []}, "load.modules is"),
        ({"modules": "second"}, "load.modules is 'second'"),
        ({"path": ""}, "load.path is ''; allowed: the folder of a recording"),
        ({"dump_after_load": "yes"}, "load.dump_after_load is 'yes'; allowed: true or false"),
        ({"step": ["a"]}, "load.step is 'a'"),
        ({"module": ["second"]}, "load has no key 'module'"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(debug, load, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        debug(**load)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["grad_probe", "free_benchmark"])
def test_tasks_that_record_no_calls_refuse_it(debug, task):
    with pytest.raises(ConfigError, match=f"not supported with task {task}"):
        debug(task=task)


def test_an_empty_value_changes_nothing(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "load": {}}))
    debugger = PrecisionDebugger(config_path=config)
    try:
        assert debugger._load is None
    finally:
        debugger._finish()
