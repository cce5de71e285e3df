"""Recordings made on a card, at every level, and the other instruments of a training there."""

from __future__ import annotations

import json
import sys

import pytest

from msprobe_hooks.dump.reader import read_dump
from tests.support import runs
from tests.support.nightly import nightly_but
from tests.support.npu.process import run_command, run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

TRAINING = """
import sys
import torch
import torch.nn.functional as F
import torch_npu
import msprobe_hooks

torch.manual_seed(0)
layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3)]
model = torch.nn.Sequential(*layers).npu()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
batch, classes = torch.randn(16, 8).npu(), torch.randint(0, 3, (16,)).npu()


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch), classes)
    loss.backward()
    optimizer.step()
    return loss


def bits():
    return [parameter.detach().cpu().view(torch.int32).sum().item() for parameter in model.parameters()]
"""


# By `mix` modules and calls are recorded.
@pytest.mark.parametrize("level", nightly_but(["L0", "L1", "mix", "aten"], "mix"))
def test_a_recording_changes_no_bit_and_passes_on_the_card(pytester: pytest.Pytester, level: str) -> None:
    recording = f"""
start = [parameter.detach().clone() for parameter in model.parameters()]
for task in (None, "statistics", "tensor"):
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start):
            parameter.copy_(value)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if task is None:
        step()
    else:
        with msprobe_hooks.record(task, task=task, level={level!r}, model=model):
            step()
    print(bits())
"""
    plain, *recorded = run_script(TRAINING + recording).splitlines()[-3:]
    assert recorded == [plain, plain]
    for task in ("statistics", "tensor"):
        assert len(read_dump(next((pytester.path / task).rglob("dump.json"))).records) > 5
        if level != "L0":
            checked = runs.check(pytester, f"--msprobe-dump={task}", "--msprobe-device=npu", apart=True)
            assert {name: checked.cases[name].text for name in checked.wrong} == {}
            assert "passed" in checked.outcomes.values()


@pytest.mark.nightly
def test_a_watched_training_writes_numbers_of_its_gradients(pytester: pytest.Pytester) -> None:
    watching = """
with msprobe_hooks.watch(model, optimizer, "watched"):
    for _ in range(2):
        step()
"""
    run_script(TRAINING + watching)
    assert [file for file in (pytester.path / "watched").rglob("*") if "grad" in file.name]


@pytest.mark.nightly
def test_calls_that_are_fixed_run_in_float32_or_on_the_host() -> None:
    fixing = """
half = torch.randn(4, 4, dtype=torch.bfloat16).npu()
for to in ("float32", "cpu"):
    with msprobe_hooks.fix("Torch.mm", to=to) as fixed:
        result = torch.mm(half, half)
    print(fixed, result.dtype, result.device)
"""
    assert run_script(TRAINING + fixing).splitlines()[-2:] == [
        "raised Torch.mm (1) torch.bfloat16 npu:0", "raised Torch.mm (1) torch.bfloat16 npu:0",
    ]  # fmt: skip


@pytest.mark.nightly
def test_the_environment_of_a_training_names_the_card_and_its_package(pytester: pytest.Pytester) -> None:
    collecting = """
from msprobe_hooks import write_environment
write_environment("environment", model=model)
step()
"""
    run_script(TRAINING + collecting)
    [written] = (pytester.path / "environment").rglob("*.json")
    assert "torch_npu" in written.read_text() or "torch-npu" in written.read_text()


@pytest.mark.nightly
def test_the_doctor_finds_the_cards() -> None:
    done = run_command("doctor")
    assert "npu" in done.stdout
    assert "Ascend910B1" in done.stdout


@pytest.mark.nightly
def test_a_fused_optimizer_of_torch_npu_is_recorded_and_judged(pytester: pytest.Pytester) -> None:
    fused = """
from torch_npu.optim import NpuFusedAdamW
optimizer = NpuFusedAdamW(model.parameters(), lr=0.1)
with msprobe_hooks.record("dump"):
    step()
"""
    run_script(TRAINING + fused)
    checked = runs.check(pytester, "--msprobe-dump=dump", "--msprobe-device=npu", apart=True)
    assert {name: checked.cases[name].text for name in checked.wrong} == {}
    assert "passed" in checked.outcomes.values()


@pytest.mark.nightly
def test_a_program_for_a_gpu_is_recorded_on_a_card_by_transfer_to_npu(pytester: pytest.Pytester) -> None:
    script = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
import msprobe_hooks
x = torch.arange(6.0).cuda().requires_grad_()
with msprobe_hooks.record("dump"):
    torch.tanh(x).sum().backward()
print(x.device)
"""
    assert run_script(script).splitlines()[-1] == "npu:0"
    data = json.loads((pytester.path / "dump/step0/rank/dump.json").read_text())["data"]
    assert "Torch.tanh.0.backward" in data


@pytest.mark.nightly
def test_the_one_call_that_a_card_gets_wrong_is_found_by_bisection(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import torch, torch_npu
x = torch.linspace(0.1, 1, 8).npu()
y = x.exp().sqrt()
y = torch.tanh(y) + y.sin()
print(float(y.sum()))
"""
    (pytester.path / "program.py").write_text(program)
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh=wrong")
    found = run_command("bisect", "--to", "cpu", "--", sys.executable, "program.py")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "Torch.tanh.0 moves the number" in found.stdout
