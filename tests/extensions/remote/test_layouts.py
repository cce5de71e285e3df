"""Memory of tensors as it was recorded, on a device elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice

#: Programs, each with the API whose tensors do not lie one after the other.
READ = (lambda: torch.tanh(torch.randn(8, 6).t()), "tanh")
WRITTEN = (lambda: torch.randn(6, 16)[:, ::2].mul_(2.0), "mul_")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "misreads.py").write_text(
        "from tests.engine.replay.memory.strided_faults import *\n"
        "class Remote(Misreading):\n"
        "    name = 'misreads'\n"
        "    def __init__(self): super().__init__(linearly)\n"
        "class Around(WritingAround):\n"
        "    name = 'around'\n"
        "def pytest_msprobe_register_devices(registry):\n"
        "    registry.add(Remote())\n"
        "    registry.add(Around())\n"
    )
    return folder


@pytest.mark.parametrize("inputs", ["sent", "drawn"])
@pytest.mark.parametrize("name", ["cpu", "misreads", "around"])
@pytest.mark.slow
def test_layouts_cross_to_another_machine(
    inputs: str, name: str, elsewhere: Path, recorded: Any, default_policy: Policy
) -> None:
    call = recorded(*(WRITTEN if name == "around" else READ))
    plugin = "" if name == "cpu" else "//plugin=misreads"
    device = RemoteDevice(f"popen//chdir={elsewhere}//inputs={inputs}{plugin}//device={name}//timeout=600")
    device.count()
    device.activate(0)
    try:
        result = Replay(call, ReplayConfig(device, default_policy, TorchFramework())).forward()
    finally:
        device.close()
    assert result.outcome == ("pass" if name == "cpu" else "fail")
    assert name == "cpu" or "; only with stride" in result.reason
