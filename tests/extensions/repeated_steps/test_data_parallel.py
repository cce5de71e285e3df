"""Steps that are computed twice on data-parallel ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
from contextlib import nullcontext
import torch, torch.distributed as dist, torch.nn.functional as F
import msprobe_hooks
from tests.support.dumps.bit_flips import FlippedBit

rank, folder, world = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
replay = msprobe_hooks.replay_step(model, every=1, folder=f"{folder}/repeats")
torch.manual_seed(rank)
with FlippedBit("tanh_backward", 4) if rank == 1 else nullcontext():
    for step in range(6):
        x = torch.randn(4, 8)

        def forward_backward():
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        optimizer.zero_grad()
        replay(forward_backward)
        if step == 3 and rank == 2:
            with torch.no_grad():
                model.module[3].bias[0] += 1
        optimizer.step()
"""


def test_the_rank_that_computes_wrong_and_the_one_that_has_left_the_others_are_named(tmp_path: Path) -> None:
    assert [status for status, _ in run_ranks(PROGRAM, 3, tmp_path)] == [0, 0, 0]
    reports = [json.loads((tmp_path / f"repeats/repeats{rank}.json").read_text()) for rank in range(3)]
    found = [
        [(each["kind"], each["step"], each["odd_pass"], each["odd_ranks"]) for each in report["differences"]]
        for report in reports
    ]
    left = ("replicas", 4, None, [2])
    received = ("received", 2, None, [])
    assert found == [[received, left], [("wrong", 2, 2, []), left], [received, left]]
    assert reports[1]["differences"][0]["call"]["operator"] == "aten.tanh_backward.default"
    assert reports[0]["differences"][1]["values"] == ["module.3.bias"]


COMPILED = """
import sys
import torch, torch.distributed as dist
import msprobe_hooks

class Descent(torch.optim.SGD):
    # As in a Muon whose matrices are spread over the ranks, of which some may have none.
    rate = staticmethod(torch.compile(lambda gradient: gradient * 0.5, backend="eager"))

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if dist.get_rank() == 0:
                parameter -= self.rate(parameter.grad)
            dist.broadcast(parameter, 0)

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
model = torch.nn.Linear(2, 1)
optimizer = Descent(model.parameters())
replay = msprobe_hooks.replay_step(model, every=1, folder=f"{folder}/repeats", optimizer=optimizer)
for step in range(4):
    optimizer.zero_grad()
    replay(lambda: model(torch.ones(1, 2)).sum().backward())
    optimizer.step()
"""


def test_steps_of_a_compiled_optimizer_of_several_ranks_are_counted_as_not_compared(tmp_path: Path) -> None:
    assert [status for status, _ in run_ranks(COMPILED, 2, tmp_path)] == [0, 0]
    for rank in range(2):
        report = json.loads((tmp_path / f"repeats/repeats{rank}.json").read_text())
        assert (report["watched"], report["optimizer_steps"], report["compiled_steps"]) == (2, 0, 2)
