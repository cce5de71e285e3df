"""A training on cards, recorded and watched while it runs, and what is then made of the recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from msprobe_hooks.dump.reader import read_dump
from tests.support.npu import run_command, run_script
from tests.support.runs import Checked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

Check = Callable[..., Checked]

MODEL = """
import sys
import torch
import torch.nn.functional as F
import torch_npu

torch.manual_seed(0)
first, second = torch.nn.Linear(8, 8).npu(1), torch.nn.Linear(8, 3).npu(1)
gamma = torch.ones(8, device="npu:1", requires_grad=True)
optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
batch, classes = torch.randn(16, 8).npu(1), torch.randint(0, 3, (16,)).npu(1)


def step():
    with torch.autocast("npu", torch.bfloat16):
        hidden = torch_npu.npu_fast_gelu(first(batch))
    hidden, _ = torch_npu.npu_rms_norm(torch.tanh(hidden), gamma.bfloat16())
    with torch.autocast("npu", torch.bfloat16):
        loss = F.cross_entropy(second(F.dropout(hidden, 0.1)), classes)
    loss.backward()
    optimizer.step()
"""


def test_a_recorded_step_passes_on_another_card_and_as_generated_tests(
    check_on_npu: Check, pytester: pytest.Pytester
) -> None:
    recording = """
import msprobe_hooks
with msprobe_hooks.record("dump"):
    copied = torch.npu.host_copies()
    step()
    print(torch.npu.host_copies() - copied)
"""
    # Numbers of tensors on a card are fetched together, once the step is over.
    assert run_script(MODEL + recording) == "0\n"
    names = list(read_dump(pytester.path / "dump/step0/rank/dump.json").records)
    assert {"NPU.npu_fast_gelu.0.backward", "NPU.npu_rms_norm.0.forward", "Torch._foreach_add_.1.forward"} <= {*names}

    checked = check_on_npu("--msprobe-dump=dump")
    assert not checked.wrong
    assert checked.outcomes["Functional.cross_entropy.0.forward"] == "passed"
    assert checked.outcomes["NPU.npu_rms_norm.0.backward"] == "passed"

    generated = run_command("generate", "dump", "-o", "generated", "--no-run")
    assert generated.returncode == 0, generated.stderr
    rerun = check_on_npu("generated")
    assert not rerun.wrong
    assert len(rerun.cases) == len(names)


def test_a_live_check_finds_the_wrong_call_of_a_step_and_no_other() -> None:
    checking = """
import warnings
from pytest_msprobe import live
warnings.simplefilter("ignore")
with live() as checks:
    step()
print(*sorted(result.record for result in checks.failed))
"""
    assert run_script(MODEL + checking) == "\n"
    assert run_script(MODEL + checking, SIMULATED_NPU_FAULTS="tanh=wrong") == (
        "Torch.tanh.0.backward Torch.tanh.0.forward\n"
    )


def test_the_call_in_which_inf_arises_is_found_on_the_card_and_run_again(check_on_npu: Check) -> None:
    recording = """
import msprobe_hooks
with msprobe_hooks.record("dump", task="overflow_check"):
    step()
    (batch * 100).exp().sqrt()
"""
    run_script(MODEL + recording)
    checked = check_on_npu("--msprobe-overflow=dump", "--msprobe-overflow-replay")
    assert "first culprit: rank 0, Tensor.exp.0.forward" in checked.output
    assert "replayed: 1 normal" in checked.output
