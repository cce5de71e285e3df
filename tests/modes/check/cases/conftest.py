"""Cases saved from dumps that are written on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trial import Setup
from pytest_msprobe.engine.values.tree import map_tensors
from pytest_msprobe.modes.check.cases.saved import SavedCase
from pytest_msprobe.modes.check.cases.saving import origin_of, save_case
from pytest_msprobe.storage.sizes import SaveOptions

Json = dict[str, Any]


class OneOff(SimDevice):
    """Adds one to the first element of whatever comes out, and makes it zero where that changes nothing."""

    name = "one-off"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        return map_tensors(_one_off, func(*args, **kwargs))


def _one_off(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        return tensor
    wrong = tensor.detach().clone()
    first = wrong.view(-1)[0]
    wrong.view(-1)[0] = ~first if wrong.dtype is torch.bool else first + 1 if first.isfinite() else 0
    return tensor + (wrong - tensor.detach()) if tensor.requires_grad else wrong


@pytest.fixture
def setup() -> Setup:
    """A device whose results are all wrong, and a seed other than the default."""
    return Setup(OneOff(), Policy.load("default"), seed=3)


@pytest.fixture
def limits(tmp_path: Path) -> SaveOptions:
    return SaveOptions(tmp_path / "cases", 2**30, 2**30)


def element(*shape: int, dtype: str = "float32", low: Any = -1.0, high: Any = 1.0, **fields: Any) -> Json:
    found = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": list(shape), "Max": high, "Min": low}
    return {**found, "Mean": None, "Norm": None, "requires_grad": False, **fields}


def forward(*args: Any, output: list[Any] | None = None, **kwargs: Any) -> Json:
    return {"input_args": list(args), "input_kwargs": kwargs, "output": [args[0]] if output is None else output}


@pytest.fixture
def replay(tmp_path: Path, setup: Setup) -> Callable[..., Any]:
    """Check the call of a record in a dump of these records, and return its replay, its result and its origin."""

    def run(records: Json, record: str, setup: Setup = setup) -> tuple[Replay, Any, Any]:
        path = tmp_path / "dump.json"
        path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": records}))
        dump = read_dump(path)
        made = Replay(read_call(dump, f"{record.rpartition('.')[0]}.forward"), setup)
        result = made.judge("backward" if record.endswith(".backward") else "forward")
        return made, result, origin_of(dump, record, "default", None)

    return run


@pytest.fixture
def save(replay: Any, limits: SaveOptions) -> Callable[..., SavedCase]:
    """Save the case of a failing record."""

    def run(records: Json, record: str, limits: SaveOptions = limits) -> SavedCase:
        made, result, origin = replay(records, record)
        assert result.verdict.outcome == "fail", result
        return save_case(made, result, origin, limits)

    return run


SOFTMAX = {
    "Functional.softmax.0.forward": forward(element(4, 8, requires_grad=True), dim={"type": "int", "value": -1}),
    "Functional.softmax.0.backward": {"input": [element(4, 8)], "output": [element(4, 8)]},
}
