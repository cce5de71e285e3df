"""A training on cards, recorded and watched while it runs, and what is then made of the recording."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from msprobe_hooks.dump.reader import read_dump
from tests.support.gloo import run_ranks
from tests.support.npu.process import run_command, run_script
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


@pytest.mark.nightly
def test_a_recorded_step_passes_on_another_card_and_as_generated_tests(
    check_on_npu: Check, pytester: pytest.Pytester
) -> None:
    recording = """
import msprobe_hooks
from tests.support.cann.kernels.copies import host_copies
with msprobe_hooks.record("dump"):
    copied = host_copies()
    step()
    print(host_copies() - copied)
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


@pytest.mark.nightly
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
    assert run_script(MODEL + checking, SIMULATED_CANN_FAULTS="tanh=wrong") == (
        "Torch.tanh.0.backward Torch.tanh.0.forward\n"
    )


@pytest.mark.nightly
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


def test_calls_made_again_on_the_host_show_which_one_the_card_gets_wrong(pytester: pytest.Pytester) -> None:
    benchmark = """
import json
from msprobe_hooks import PrecisionDebugger
section = {"fuzz_device": "cpu", "pert_mode": "to_cpu", "handler_type": "check", "fuzz_level": "L1"}
config = {"task": "free_benchmark", "dump_path": "found", "rank": [], "step": [], "level": "L1"}
with open("config.json", "w") as file:
    json.dump(config | {"free_benchmark": section}, file)
debugger = PrecisionDebugger(config_path="config.json")
debugger.start()
F.dropout(torch.tanh(first(batch))).exp().sum().backward()
debugger.stop()
"""
    run_script(MODEL + benchmark, SIMULATED_CANN_FAULTS="tanh=wrong")
    [table] = (pytester.path / "found").rglob("*.csv")
    # What dropout draws comes from the card's own generator: it is left out.
    assert {line.split(",")[4] for line in table.read_text().splitlines()[1:]} == {"Torch.tanh.0.forward"}


COLLECTIVES = """
import sys
import torch
import torch.distributed as dist
import torch_npu
from msprobe_hooks import record

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.npu.set_device(rank)
dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
with record(f"{folder}/dump"):
    sent = torch.full((2,), rank + 1.0, device="npu")
    dist.all_reduce(sent)
    gathered = [torch.zeros(2, device="npu") for _ in range(2)]
    dist.all_gather(gathered, sent + rank)
    dist.broadcast(sent, 1)
assert [each.tolist() for each in gathered] == [[3, 3], [4, 4]], gathered
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_collectives_of_hccl_are_recorded_with_what_the_cards_received(pytester: pytest.Pytester) -> None:
    for status, errors in run_ranks(COLLECTIVES, 2, pytester.path):
        assert status == 0, errors
    for rank in range(2):
        records = json.loads((pytester.path / f"dump/step0/rank{rank}/dump.json").read_text())["data"]
        assert records["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 3.0
        assert {"Distributed.all_gather.0.forward", "Distributed.broadcast.0.forward"} <= {*records}


@pytest.mark.nightly
def test_recurrent_layers_are_recorded_and_pass_on_a_card(check_on_npu: Check, pytester: pytest.Pytester) -> None:
    run_script(
        """
import torch, torch_npu, msprobe_hooks
torch.manual_seed(0)
lstm, gru = torch.nn.LSTM(4, 6, 2, bidirectional=True).npu(), torch.nn.GRU(12, 3, batch_first=True).npu()
x = torch.randn(5, 2, 4).npu().requires_grad_()
with msprobe_hooks.record("dump"):
    gru(lstm(x)[0])[0].square().sum().backward()
"""
    )
    checked = check_on_npu("--msprobe-dump=dump")
    assert not checked.wrong
    for name in ("VF.lstm.0.forward", "VF.lstm.0.backward", "Torch.gru.0.forward", "Torch.gru.0.backward"):
        assert checked.outcomes[name] == "passed"
