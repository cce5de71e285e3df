"""Steps that are computed twice on ranks that have parts of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.gloo import run_ranks

pytestmark = pytest.mark.slow

# Of the ranks, the second computes one call wrong.
PROGRAM = """
import sys
from contextlib import nullcontext
import torch, torch.distributed as dist
from torch import nn
import msprobe_hooks
from tests.support.dumps.bit_flips import FlippedBit

rank, folder, world = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
torch.manual_seed(0)
SETUP
optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
replay = msprobe_hooks.replay_step(model, every=1, folder=f"{folder}/repeats", optimizer=optimizer)
for step in range(5):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    optimizer.zero_grad()
    with FlippedBit("FLIPPED", NUMBER) if step == 3 and rank == 1 else nullcontext():
        replay(lambda: forward_backward(x, y))
        optimizer.step()
"""
PIPELINE = """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
schedule = Schedule1F1B(PipelineStage(model, rank, world, torch.device("cpu")), 4, loss_fn=nn.functional.mse_loss)

def forward_backward(x, y):
    losses = []
    schedule.step(*[x] * (rank == 0), **({"target": y, "losses": losses} if rank == world - 1 else {}))
    return [loss.detach() for loss in losses]
"""
LAYERS = """
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
SHARD

def forward_backward(x, y):
    loss = nn.functional.mse_loss(model(x + rank * OWN_DATA), y)
    loss.backward()
    return loss.detach()
"""
FSDP = LAYERS.replace("OWN_DATA", "1").replace(
    "SHARD",
    "from torch.distributed.fsdp import fully_shard\n"
    "for part in (model[0], model[2], model): fully_shard(part, mesh=mesh)",
)
TENSOR_PARALLEL = LAYERS.replace("OWN_DATA", "0").replace(
    "SHARD",
    "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module\n"
    "parallelize_module(model, mesh, {'0': ColwiseParallel(), '2': RowwiseParallel()})",
)


def reports(program: str, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Return what each rank reports of the three steps that it has watched."""
    ends = run_ranks(program, ranks, folder)
    assert [status for status, _ in ends] == [0] * ranks, ends
    found = [json.loads((folder / f"repeats/repeats{rank}.json").read_text()) for rank in range(ranks)]
    assert [(report["watched"], report["optimizer_steps"]) for report in found] == [(3, 3)] * ranks
    return found


@pytest.mark.parametrize(
    ("setup", "ranks", "flipped", "number", "kinds"),
    [
        # The last stage communicates less often than the one that is wrong.
        (PIPELINE, 3, "tanh", 2, ["received", "wrong", "received"]),
        (FSDP, 2, "tanh_backward", 2, ["received", "wrong"]),
        pytest.param(TENSOR_PARALLEL, 2, "tanh", 1, ["received", "wrong"], marks=pytest.mark.nightly),
        # A shard of the optimizer's step is no other rank's.
        pytest.param(FSDP, 2, "addcdiv_", 2, [None, "wrong"], marks=pytest.mark.nightly),
    ],
    ids=["pipeline", "fsdp", "tensor parallel", "optimizer of fsdp"],
)
def test_the_rank_that_computes_wrong_is_named_and_healthy_steps_raise_nothing(
    tmp_path: Path, setup: str, ranks: int, flipped: str, number: int, kinds: list[str | None]
) -> None:
    program = PROGRAM.replace("SETUP", setup).replace("FLIPPED", flipped).replace("NUMBER", str(number))
    found = reports(program, ranks, tmp_path)
    steps = [[(each["kind"], each["step"]) for each in report["differences"]] for report in found]
    assert steps == [[] if kind is None else [(kind, 3)] for kind in kinds]
    (wrong,) = found[1]["differences"]
    if wrong["optimizer"]:
        assert wrong["values"] == ["0.bias"]
    else:
        assert wrong["call"]["operator"] == f"aten.{flipped}.default"
