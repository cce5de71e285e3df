"""Level L2 on simulated cards, whose library writes a file for each kernel that runs while it dumps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.npu.process import run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

SCRIPT = """
import json
import sys
import torch, torch_npu
from msprobe_hooks import PrecisionDebugger

with open("config.json", "w") as file:
    json.dump({"task": "tensor", "level": "L2", "dump_path": "dump", "tensor": {"list": [sys.argv[1]]}}, file)
debugger = PrecisionDebugger(config_path="config.json")
x = torch.arange(3.0, device="npu").requires_grad_()
debugger.start(rank_id=0)
loss = (torch.tanh(x) + torch.tanh(x.exp())).sum()
loss.backward()
debugger.stop()
debugger.step()
print(x.grad.tolist())
"""


def kernels(folder: Path) -> list[str]:
    """Return the types of the kernels of whose files the first step has some."""
    return sorted(file.name.split(".")[0] for file in (folder / "dump/step0/20260101000000/0").iterdir())


def recorded(folder: Path) -> set[str]:
    return {*json.loads((folder / "dump/step0/rank0/dump.json").read_text())["data"]}


def test_the_kernels_of_one_call_are_dumped_and_the_call_is_recorded(pytester: pytest.Pytester) -> None:
    run_script(SCRIPT, "Torch.tanh.1.forward")
    config = json.loads((pytester.path / "dump/step0/kernel_config_0.json").read_text())
    assert config["dump"]["dump_path"] == "dump/step0"
    assert kernels(pytester.path) == ["tanh"]
    assert recorded(pytester.path) == {"Torch.tanh.1.forward", "Torch.tanh.1.backward"}


@pytest.mark.nightly
def test_of_a_backward_record_the_kernels_of_the_gradient_alone_are_dumped(pytester: pytest.Pytester) -> None:
    plain = run_script(SCRIPT, "Torch.sigmoid.0.forward").splitlines()[0]
    found = run_script(SCRIPT.replace('"dump"', '"other"').replace("dump/", "other/"), "Torch.tanh.0.backward")
    assert found.splitlines()[0] == plain
    files = (pytester.path / "other/step0/20260101000000/0").iterdir()
    assert {file.name.split(".")[0] for file in files} >= {"tanh_backward"}
    assert "tanh" not in {file.name.split(".")[0] for file in files}
