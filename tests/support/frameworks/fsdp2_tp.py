"""PyTorch's FSDP2 and tensor parallelism on four gloo ranks, as TorchTitan's loop combines them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tests.support.frameworks.run import Run

WIDTH = 16


class Block(nn.Module):
    """A normalized feed-forward layer that is added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.silu(self.up(self.norm(x))))


def train(run: Run) -> list[Tensor]:
    """Train two steps; the data-parallel ranks have other batches."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(WIDTH, 1))
    run.plant(model.get_parameter("1.up.weight"))
    for block in model[:3]:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = torch.Generator().manual_seed(mesh.get_local_rank("dp"))
    for _ in range(2):
        batch = torch.randn(4, WIDTH, generator=batches)
        run.start(model)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.end_step()
        run.losses.append(loss.item())
    parameters = [one.to_local() if isinstance(one, DTensor) else one for one in model.parameters()]
    dist.destroy_process_group()
    return parameters
