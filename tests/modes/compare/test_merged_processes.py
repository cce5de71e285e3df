"""Real ranks that communicate by gloo, merged and compared with one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks

pytestmark = pytest.mark.slow

Compare = Callable[..., pytest.RunResult]
_TARGET = "--msprobe-target-layout"

_START = """
import sys
from pathlib import Path
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from msprobe_hooks import record
torch.set_num_threads(1)
rank, folder, world, fault = int(sys.argv[1]), Path(sys.argv[2]), WORLD, FAULT
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))
"""

_DTENSOR = """
model = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(16, 5))
if world > 1:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (world,))
    for block in model[:3]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
with torch.no_grad():
    if fault == "weight" and rank == 1:
        model[1].down.weight.to_local()[3, 2] += 0.05
    if fault == "norm" and rank == 1:
        model[2].norm.weight[5] *= 1.02
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
with record(folder / "run", level="mix", model=model):
    model(torch.linspace(-1, 2, 64).sin().view(4, 16)).square().mean().backward()
    optimizer.step()
"""

_SHARDED = """
model = nn.Sequential(nn.Linear(15, 33), nn.GELU(), nn.Linear(33, 15), nn.LayerNorm(15))
if fault != "whole":
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2], model):
        fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
with record(folder / "run", level="mix", model=model):
    model(torch.linspace(-1, 2 + rank, 60).sin().view(4, 15)).square().mean().backward()
    if fault == "whole":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
    optimizer.step()
"""

_PIPELINE = """
blocks = [Block() for _ in range(4)]
class Stage(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.layers = nn.ModuleList(blocks)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
if fault == "eps":
    blocks[2].norm.eps = 1e-3
count = 4 // world
stage = Stage(blocks[rank * count : (rank + 1) * count])
batch = torch.linspace(-1, 2, 144).sin().view(9, 16)
labels = torch.linspace(0, 4.9, 9).long()
def forward(i):
    if rank == 0:
        x = batch[3 * i : 3 * i + 3]
    else:
        x = torch.zeros(3, 16)
        dist.recv(x, 0)
        x.requires_grad_()
    y = stage(x)
    if rank < world - 1:
        dist.send(y.detach(), 1)
        return x, y
    return x, F.cross_entropy(y, labels[3 * i : 3 * i + 3]) / 3
def backward(x, y):
    if rank < world - 1:
        gradient = torch.zeros(3, 16)
        dist.recv(gradient, 1)
        y.backward(gradient)
    else:
        y.backward()
    if rank:
        dist.send(x.grad, 0)
with record(folder / "run", level="mix", model=stage):
    if world == 1:
        for i in range(3):
            backward(*forward(i))
    else:
        for made in [forward(i) for i in range(3)]:
            backward(*made)
"""

_FUNCTIONS = """
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, gradient):
        return gradient
class Split(nn.Module):
    def __init__(self):
        super().__init__()
        up, down = torch.randn(32, 16), torch.randn(16, 32)
        self.up = nn.Parameter(up.chunk(world)[rank].clone())
        self.down = nn.Parameter(down.chunk(world, 1)[rank].clone())
    def forward(self, x):
        y = F.linear(F.gelu(F.linear(Copy.apply(x) if world > 1 else x, self.up)), self.down)
        return Reduce.apply(y) if world > 1 else y
model = nn.Sequential(nn.LayerNorm(16), Split(), nn.LayerNorm(16), Split())
with torch.no_grad():
    if fault == "weight" and rank == 1:
        model[3].down[3, 2] += 0.5
with record(folder / "run", level="mix", model=model):
    loss = model(torch.linspace(-1, 2, 64).sin().view(4, 16)).square().mean()
    loss.backward()
    shown = loss.detach().clone()
"""


@pytest.fixture
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run a program on some ranks and return what they recorded."""

    def run(program: str, world: int, fault: str = "") -> Path:
        folder = tmp_path_factory.mktemp("ranks")
        start = _START.replace("WORLD", str(world)).replace("FAULT", repr(fault))
        ended = run_ranks(start + program + "\ndist.barrier()\ndist.destroy_process_group()", world, folder)
        assert [status for status, _ in ended] == [0] * world, ended
        return folder / "run" / "step0"

    return run


@pytest.mark.nightly
def test_an_honest_run_of_distributed_tensors_raises_no_alarm(compare: Compare, ranks: Callable[..., Path]) -> None:
    result = compare(ranks(_DTENSOR, 2), ranks(_DTENSOR, 1), _TARGET, "tp=2")
    result.stdout.fnmatch_lines(["no compared call differs*"])
    result.stdout.no_fnmatch_line("not compared, because ranks hold*")
    result.stdout.no_fnmatch_line("copies of the ranks differ*")


@pytest.mark.parametrize(
    ("fault", "call", "module"),
    [
        ("weight", "linear.3", "1.down.Linear"),
        pytest.param("norm", "layer_norm.2", "2.norm.LayerNorm", marks=pytest.mark.nightly),
    ],
)
def test_a_fault_in_a_distributed_tensor_is_named_in_its_layer(
    compare: Compare, ranks: Callable[..., Path], fault: str, call: str, module: str
) -> None:
    result = compare(ranks(_DTENSOR, 2, fault), ranks(_DTENSOR, 1), _TARGET, "tp=2")
    result.stdout.fnmatch_lines(
        [
            f"first forward culprit: weight * differs (*; first read by Functional.{call}.forward",
            f"    in Module.{module}.*",
        ]
    )


@pytest.mark.nightly
def test_parameters_that_are_sharded_over_data_parallel_ranks_are_whole(
    compare: Compare, ranks: Callable[..., Path]
) -> None:
    sharded, whole = ranks(_SHARDED, 2), ranks(_SHARDED, 2, "whole")
    result = compare(sharded, whole, _TARGET, "tp=1")
    result.stdout.fnmatch_lines(
        ["no compared call differs*", "*gradients after their reduction over data parallel ranks: *"]
    )
    compare(sharded, whole).stdout.fnmatch_lines(["parts of DTensors were compared as tensors; specify the layout *"])


@pytest.mark.nightly
def test_an_honest_pipeline_raises_no_alarm(compare: Compare, ranks: Callable[..., Path]) -> None:
    result = compare(ranks(_PIPELINE, 2), ranks(_PIPELINE, 1), _TARGET, "pp=2")
    result.stdout.fnmatch_lines(["no compared call differs*"])


def test_another_epsilon_in_a_pipeline_is_the_first_culprit(compare: Compare, ranks: Callable[..., Path]) -> None:
    result = compare(ranks(_PIPELINE, 2, "eps"), ranks(_PIPELINE, 1), _TARGET, "pp=2")
    result.stdout.fnmatch_lines(["first forward culprit: *", "    in Module.layers.2.norm.LayerNorm.forward.0"])


@pytest.mark.nightly
def test_collectives_inside_autograd_functions_raise_no_alarm(compare: Compare, ranks: Callable[..., Path]) -> None:
    result = compare(ranks(_FUNCTIONS, 2), ranks(_FUNCTIONS, 1), _TARGET, "tp=2")
    result.stdout.fnmatch_lines(["no compared call differs*"])


def test_a_fault_behind_such_collectives_heads_the_summary(compare: Compare, ranks: Callable[..., Path]) -> None:
    result = compare(ranks(_FUNCTIONS, 2, "weight"), ranks(_FUNCTIONS, 1), _TARGET, "tp=2")
    result.stdout.fnmatch_lines(
        ["first forward culprit: *; first read by Functional.linear.3.forward", "    in Module.3.Split.*"]
    )
