"""A framework is one entry of a table and an object that speaks torch's terms to the engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe import check_call
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine import frameworks
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.errors import DeviceError


class NumpyFramework:
    """Runs ``Numpy.NAME`` by numpy, and takes torch's function of the same name for the golden result."""

    name = "numpy"
    autocasts = False
    scale = 1.0

    def device(self, devices: Any, name: str) -> Any:
        return CpuDevice()

    def describe(self, device: Any) -> str:
        return f"numpy {np.__version__}"

    def math_modes(self, device: Any) -> dict[str, str]:
        return {}

    def in_torch_terms(self, call: Any) -> Any:
        return replace(call, counterpart=parse_api_name(f"Torch.{call.name.api}.0.forward"))

    def functions(self, call: Any, references: Any, device: Any, function: Any) -> Functions:
        def target(*args: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(getattr(np, call.name.api)(*(x.numpy() for x in args)) * np.float32(self.scale))

        return Functions(target, getattr(torch, call.api))


def tensor(*shape: int) -> dict[str, Any]:
    statistics = {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 2.0}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), **statistics}


@pytest.fixture
def record(tmp_path: Path) -> Any:
    body = {"input_args": [tensor(3, 4), tensor(4, 5)], "input_kwargs": {}, "output": [tensor(3, 5)]}
    content = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": {"Numpy.matmul.0.forward": body}}
    (tmp_path / "dump.json").write_text(json.dumps(content))
    return read_call(read_dump(tmp_path / "dump.json"), "Numpy.matmul.0.forward")


@pytest.mark.parametrize(("scale", "outcome"), [(1.0, "pass"), (1.001, "fail")])
def test_an_added_framework_is_judged_like_any_other(
    record: Any, monkeypatch: pytest.MonkeyPatch, scale: float, outcome: str
) -> None:
    known = frameworks.FrameworkRegistry()
    known.add("numpy", frameworks.FrameworkEntry(NumpyFramework))
    monkeypatch.setattr(frameworks, "frameworks", lambda: known)
    framework: Any = frameworks.framework_named("numpy")
    framework.scale = scale
    result = check_call(record, device=CpuDevice(), framework=framework)
    assert result.forward.verdict.outcome == outcome


def test_an_unknown_framework_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeviceError, match="unknown framework 'jax'; known are pytorch"):
        frameworks.framework_named("jax")
