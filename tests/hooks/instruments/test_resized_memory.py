"""A training that frees the memory of its own tensors and takes it again, as FSDP does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.support.trainings.instruments import INSTRUMENTS

X = torch.ones(2, 4)


def freed_and_filled(tensor: Tensor) -> Tensor:
    """Have a tensor's memory freed and taken again, with the values that it had."""
    values, storage = tensor.detach().clone(), tensor.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    tensor.data.copy_(values)
    return tensor


def resized(net: nn.Module) -> Callable[[], Tensor]:
    def run() -> Tensor:
        kinds = [torch.float32, torch.float64, torch.float16, torch.complex64, torch.int64, torch.uint8]
        results = [torch.arange(1, 5).to(dtype) * 2 for dtype in kinds]
        results += [torch.arange(9000).to(torch.bfloat16) + 1, results[0] > 3]
        y = net(X)
        loss = (y * torch.relu(y)).sum()
        loss.backward()
        gradients = [one.grad for one in net.parameters() if one.grad is not None]
        for tensor in [*results, *net.parameters(), *gradients, y.detach()]:
            freed_and_filled(tensor)
        return loss.detach()

    return run


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_memory_can_be_resized_under_every_instrument(name, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with INSTRUMENTS[name](tmp_path, net, optimizer) as run:
        for _ in range(2):
            run(resized(net))
            optimizer.step()
            optimizer.zero_grad()
    freed_and_filled(net[0].weight)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", [name for name in INSTRUMENTS if name != "weights"])
def test_a_fully_sharded_model_trains_under_every_instrument(name, tmp_path, one_process):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("torch before 2.6 has it in a private module")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    fsdp.fully_shard(net, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def forward_backward() -> Tensor:
        loss = net(X).sum()
        loss.backward()
        return loss.detach()

    losses = []
    with INSTRUMENTS[name](tmp_path, net, optimizer) as run:
        for _ in range(2):
            losses.append(float(run(forward_backward)))
            optimizer.step()
            optimizer.zero_grad()
    assert losses[1] < losses[0]
