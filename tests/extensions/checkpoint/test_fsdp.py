"""What FSDP2 shards over real ranks and writes is compared with what one rank writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gloo import run_ranks

pytestmark = pytest.mark.slow

TRAINING = """
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, out, world, rate = int(sys.argv[1]), sys.argv[2], {ranks}, {rate}
dist.init_process_group("gloo", init_method=f"file://{{out}}.store", rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5))
for layer in (model[0], model[1], model[3]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
model(torch.arange(8).reshape(2, 4)).square().sum().backward()
optimizer.step()
weights, moments = get_state_dict(model, optimizer)
dcp.save({{"model": weights, "optim": moments}}, checkpoint_id=out)
dist.destroy_process_group()
"""


def train(folder: Path, ranks: int, rate: float = 0.01) -> Path:
    """Train one step on so many ranks, and return the folder of its checkpoint."""
    assert run_ranks(TRAINING.format(ranks=ranks, rate=rate), ranks, folder) == [(0, "")] * ranks
    return folder


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_what_two_ranks_share_is_one_checkpoint(tmp_path: Path, check: Callable[..., Any]) -> None:
    two, one, faster = train(tmp_path / "two", 2), train(tmp_path / "one", 1), train(tmp_path / "faster", 2, 0.02)
    assert len([*two.glob("*.distcp")]) == 2
    equal = check(f"--msprobe-checkpoint={two}", f"--msprobe-golden={one}", "-omsprobe_checkpoint_limit=1e-5")
    assert set(equal.outcomes.values()) == {"passed"}
    assert {"model.0.weight", "model.3.bias"} < set(equal.outcomes)
    moved = check(f"--msprobe-checkpoint={two}", f"--msprobe-golden={faster}")
    failed = {name for name, outcome in moved.outcomes.items() if outcome == "failed"}
    assert {name for name in moved.outcomes if name.startswith("model.")} <= failed
