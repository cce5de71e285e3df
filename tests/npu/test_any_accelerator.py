"""What is written for any accelerator of torch, alone: on cards whose package is known, its own device is not asked."""

from __future__ import annotations

import ast
import csv
import json

import pytest

from tests.support import runs
from tests.support.nightly import nightly_but
from tests.support.npu.process import run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

CONFTEST = """
def pytest_msprobe_register_devices(registry):
    from pytest_msprobe.devices.accelerator import Accelerator

    registry.add(Accelerator("npu"))
"""
# A program without pytest has no conftest.
TRAINING = """
import sys
import torch
import torch_npu
from pytest_msprobe.devices import registry
from pytest_msprobe.devices.accelerator import Accelerator

registry.NpuDevice = lambda: Accelerator("npu")
import msprobe_hooks, pytest_msprobe

torch.manual_seed(0)
first, last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
model = torch.nn.Sequential(first, torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.5), last).to("npu:1")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
start = [parameter.detach().clone() for parameter in model.parameters()]


def step():
    torch.manual_seed(1)
    for parameter, values in zip(model.parameters(), start):
        parameter.data.copy_(values)
    optimizer.state.clear()
    optimizer.zero_grad()
    with torch.autocast("npu", torch.bfloat16):
        loss = model(torch.randn(16, 8).to("npu:1") + torch.zeros(8, device="npu:1")).square().mean()
    loss.backward()
    optimizer.step()
    bits = [parameter.detach().cpu().view(torch.int32).sum().item() for parameter in model.parameters()]
    return bits, torch.npu.get_rng_state(1).sum().item()
"""


@pytest.fixture(autouse=True)
def general_device(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)


@pytest.mark.parametrize(
    "how", nightly_but([["--msprobe-repeat=2"], ["--msprobe-isolate"]], ["--msprobe-repeat=2"]), ids=" ".join
)
def test_a_recording_changes_no_bit_and_passes_on_the_card(pytester: pytest.Pytester, how: list[str]) -> None:
    recording = """
print(repr(step()))
for task in ("statistics", "tensor"):
    with msprobe_hooks.record(task, level="mix", task=task, model=model):
        print(repr(step()))
"""
    plain, *recorded = run_script(TRAINING + recording).splitlines()[-3:]
    assert recorded == [plain, plain]
    data = json.loads((pytester.path / "tensor/step0/rank/dump.json").read_text())["data"]
    assert data["Tensor.to.0.forward"]["input_args"][1] == {"type": "str", "value": "npu:1"}
    checked = runs.check(pytester, "--msprobe-dump=tensor", "--msprobe-device=npu:1", *how, apart=True)
    assert checked.exit_code == 0, checked.output
    assert set(checked.outcomes.values()) == {"passed"}
    assert len(checked.outcomes) > 50


def test_calls_are_judged_on_the_card_while_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh=wrong")
    judging = """
import warnings
plain = step()
x = torch.linspace(0.1, 1, 32).to("npu:1")
with warnings.catch_warnings(record=True) as said, pytest_msprobe.live() as checks:
    assert step() == plain
    x.exp(), x.tanh()
warned = [str(each.message) for each in said if each.category.__name__ == "PrecisionWarning"]
print(repr(warned), checks, sep="\\n")
"""
    warned, counts, *_ = run_script(TRAINING + judging).partition("['")[2].splitlines()
    assert warned.startswith("Tensor.tanh.0.forward: output.0: 1 of 32 elements wrong")
    assert ", 1 fail, in" in counts


def test_a_watched_training_has_the_norms_of_its_gradients(pytester: pytest.Pytester) -> None:
    watching = """
plain = step()
with msprobe_hooks.watch(model, optimizer, "watched"):
    assert step() == plain
print({name: parameter.grad.double().norm().item() for name, parameter in model.named_parameters()})
"""
    norms = ast.literal_eval(run_script(TRAINING + watching).splitlines()[-1])
    (written,) = (pytester.path / "watched").rglob("grad_reduced*.csv")
    with written.open() as file:
        found = {row["name"]: float(row["norm"]) for row in csv.DictReader(file)}
    assert found.keys() == norms.keys()
    assert found == pytest.approx(norms, rel=1e-5)
