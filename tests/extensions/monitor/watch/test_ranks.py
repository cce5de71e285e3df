from __future__ import annotations

import pytest
import torch

from tests.support.gloo import run_ranks
from tests.support.requirements import require

pytestmark = pytest.mark.slow

require(torch.distributed.is_available(), "torch.distributed")

TRAINING = """
import copy, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from msprobe_hooks import watch

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)

def sharded(model):
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def shard(gradient):
    return gradient.chunk(2)[rank]

for wrap, kept in ((nn.parallel.DistributedDataParallel, lambda whole: whole), (sharded, shard)):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    model = wrap(copy.deepcopy(plain))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(3, 4, generator=torch.Generator().manual_seed(rank))
    plain(batch).square().mean().backward()
    with watch(model, optimizer, format="api", what=["gradients", "moments", "parameters", "direction"]) as watcher:
        model(batch).square().mean().backward()
        optimizer.step()
    assert not watcher.collection.errors, watcher.collection.errors
    values = {(row.task, row.name.removeprefix("module.")): row.values[0] for row in watcher.rows}
    for name, parameter in plain.named_parameters():
        own = parameter.grad.double().norm().item()
        assert abs(values["grad_unreduced", name] - own) < 1e-6, (wrap, name, values["grad_unreduced", name], own)
        dist.all_reduce(parameter.grad)
        mean = kept(parameter.grad / 2).double().norm().item()
        assert abs(values["grad_reduced", name] - mean) < 1e-6, (wrap, name, values["grad_reduced", name], mean)
dist.barrier()
dist.destroy_process_group()
"""


def test_gradients_before_reduction_are_the_rank_s_own_and_those_after_it_what_is_stepped(tmp_path):
    assert run_ranks(TRAINING, 2, tmp_path) == [(0, "")] * 2


COMMUNICATION = """
import json, os, sys, torch, torch.distributed as dist
from msprobe_hooks import TrainerMon

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
os.environ["MONITOR_OUTPUT_DIR"] = folder + "/out"
path = f"{folder}/config{rank}.json"
# The lines of this script have no file: <string>[12].
watched = {"enable": True, "cc_pre_hook": True, "cc_codeline": ["^<string>"]}
with open(path, "w") as file:
    json.dump({"cc_distribution": watched, "ops": ["min", "max", "norm", "mean"], "format": "api"}, file)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = TrainerMon(path)
monitor.set_monitor(model, optimizer)
before = dist.all_reduce
for value in (1.0, 3.0):
    dist.all_reduce(torch.full((4,), value * (rank + 1)))
out = torch.empty(2)
work = dist.all_gather_into_tensor(out, torch.tensor([rank + 1.0]), async_op=True)
work.wait()
optimizer.step()
found = {row.name: row.values for row in monitor._watcher.rows}
own = (rank + 1.0, 3.0 * (rank + 1))
assert found["all_reduce/pre_0"] == (*own, 2 * sum(own), sum(own) / 2), found
assert found["all_reduce/post_0"] == (3.0, 9.0, 24.0, 6.0), found
assert found["all_gather_into_tensor/post_0"][:2] == (1.0, 2.0), found
assert list(found) == [
    "all_reduce/pre_0", "all_reduce/post_0", "all_gather_into_tensor/pre_0",
    "all_gather_into_tensor/post_0", "all_gather_into_tensor/post_1",
], found
monitor._watcher.close()
assert dist.all_reduce is before
assert "wait_and_report" not in dist.Work.wait.__qualname__
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_collectives_of_a_step_are_reported_together_before_and_after(tmp_path):
    assert run_ranks(COMMUNICATION, 2, tmp_path) == [(0, "")] * 2


STAGES = """
import json, os, sys, torch, torch.distributed as dist
from msprobe_hooks import TrainerMon

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
os.environ["MONITOR_OUTPUT_DIR"] = folder
path = f"{folder}/config{rank}.json"
rules = [{"rule_name": "AnomalyNan", "args": {"threshold": 0.0}}]
with open(path, "w") as file:
    json.dump({"wg_distribution": True, "format": "api", "alert": {"rules": rules, "dump": True}}, file)
model = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
TrainerMon(path, process_group=dist.new_group([0, 1])).set_monitor(model, optimizer)
model(torch.ones(1, 1)).sum().backward()
optimizer.step()
with open(f"{folder}/anomaly_detected/rank{rank}/anomaly.json") as file:
    found = [(one["rank"], one["pp_stage"], one["group_mates"]) for one in json.load(file).values()]
assert found == [(rank, rank, [0, 1])] * 2, found
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_anomalies_show_the_stage_of_the_pipeline_and_its_ranks(tmp_path):
    ended = run_ranks(STAGES, 2, tmp_path)
    assert [code for code, _ in ended] == [0, 0], ended
