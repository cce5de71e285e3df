"""A step of data parallel training and what ranks tell each other, recorded: by HCCL on cards, or by gloo on the host.

Its arguments are the rank, a folder and how many ranks there are; DEVICE, NAME, TASK and LEVEL say where it runs and
what is recorded.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from msprobe_hooks import record


def main(rank: int, folder: str, count: int) -> None:
    """Record one step of this rank in a folder of that name."""
    device, name = os.environ["DEVICE"], os.environ["NAME"]
    if device == "npu":
        torch.npu.set_device(rank)  # type: ignore[attr-defined,unused-ignore]
    backend = {"npu": "hccl", "cpu": "gloo"}[device]
    dist.init_process_group(backend, init_method=f"file://{folder}/store-{name}", rank=rank, world_size=count)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    model = DistributedDataParallel(layers.to(device))
    model.register_comm_hook(None, allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    torch.manual_seed(rank + 1)
    batch = torch.randn(8, 8).to(device)
    with record(f"{folder}/{name}", task=os.environ["TASK"], level=os.environ["LEVEL"], model=model):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        _communicate(loss.detach().reshape(1), batch, rank, count)
    dist.destroy_process_group()


def _communicate(loss: torch.Tensor, batch: torch.Tensor, rank: int, count: int) -> None:
    total = loss.clone()
    dist.all_reduce(total)
    dist.all_gather([torch.zeros_like(loss) for _ in range(count)], loss)
    dist.all_reduce(batch, async_op=True).wait()
    if rank == 0:
        dist.send(batch, 1)
    if rank == 1:
        dist.recv(batch, 0)
    dist.broadcast(total, 0)
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
