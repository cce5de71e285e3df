"""What FSDP1 and FSDP2 shard over real ranks and write is compared with what one rank writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gloo import run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

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


FLAT = """
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

from msprobe_hooks import write_weights

rank, out, ranks = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=ranks)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj, self.norm = nn.Linear(6, 7), nn.Linear(7, 6, bias=False), nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x + self.down_proj(self.up_proj(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.lm_head = nn.Sequential(Layer(), Layer()), nn.Linear(6, 5)

    def forward(self, x):
        return self.lm_head(self.layers(x))


whole = Model()
if rank == 0:
    write_weights(whole, out + "/whole")
for name, kept in (("flat", False), ("kept", True)):
    options = {"use_orig_params": kept, "device_id": torch.device("cpu")}
    sharded = Model()
    for place in range(2):
        sharded.layers[place] = FSDP(sharded.layers[place], **options)
    sharded = FSDP(sharded, **options)
    if kept:
        sharded(torch.ones(2, 6)).sum().backward()
    write_weights(sharded, f"{out}/{name}", "tensors")
    if rank == 1:
        sharded.layers[1]._handle.flat_param.data[0] += 1
    write_weights(sharded, f"{out}/{name}_moved")
copies = FSDP(Model(), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu"))
write_weights(copies, out + "/copies")
dist.destroy_process_group()
"""


def train(folder: Path, ranks: int, rate: float = 0.01) -> Path:
    """Train one step on so many ranks, and return the folder of its checkpoint."""
    assert run_ranks(TRAINING.format(ranks=ranks, rate=rate), ranks, folder) == [(0, "")] * ranks
    return folder


@pytest.mark.nightly
def test_what_two_ranks_share_is_one_checkpoint(tmp_path: Path, check: Callable[..., Any]) -> None:
    two, one, faster = train(tmp_path / "two", 2), train(tmp_path / "one", 1), train(tmp_path / "faster", 2, 0.02)
    assert len([*two.glob("*.distcp")]) == 2
    equal = check(f"--msprobe-checkpoint={two}", f"--msprobe-golden={one}", "-omsprobe_checkpoint_limit=1e-5")
    assert set(equal.outcomes.values()) == {"passed"}
    assert {"model.0.weight", "model.3.bias"} < set(equal.outcomes)
    moved = check(f"--msprobe-checkpoint={two}", f"--msprobe-golden={faster}")
    failed = {name for name, outcome in moved.outcomes.items() if outcome == "failed"}
    assert {name for name in moved.outcomes if name.startswith("model.")} <= failed


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of what two ranks of FSDP1 write, with flat parameters and with the original ones."""
    folder = tmp_path_factory.mktemp("fsdp1")
    assert run_ranks(FLAT, 2, folder) == [(0, "")] * 2
    return folder


@pytest.mark.parametrize("name", ["flat", "kept", "copies"])
def test_flat_parameters_of_fsdp1_are_the_model_s(flat: Path, check: Callable[..., Any], name: str) -> None:
    checked = check(f"--msprobe-checkpoint={flat / name}", f"--msprobe-golden={flat / 'whole'}")
    assert set(checked.outcomes.values()) == {"passed"}
    assert {"layers.1.down_proj.weight", "layers.0.norm.bias", "lm_head.weight"} < set(checked.outcomes)
    assert len(checked.outcomes) == 12


@pytest.mark.parametrize("name", ["flat", "kept"])
def test_one_element_of_a_flat_parameter_is_named(flat: Path, check: Callable[..., Any], name: str) -> None:
    checked = check(f"--msprobe-checkpoint={flat}/{name}_moved", f"--msprobe-golden={flat / 'whole'}")
    failed = {name for name, outcome in checked.outcomes.items() if outcome == "failed"}
    assert failed == {"layers.1.down_proj.weight"}
    assert "1 of 6 rows differ (0)" in checked.cases["layers.1.down_proj.weight"].text


def test_values_of_flat_parameters_are_put_together(flat: Path, check: Callable[..., Any]) -> None:
    checked = check(f"--msprobe-checkpoint={flat / 'flat'}", f"--msprobe-golden={flat / 'kept'}")
    assert set(checked.outcomes.values()) == {"passed"}
