"""Trainings of one model split over ranks on cards, compared with the training of the whole model by the host.

Run as a program by each rank, as `checked_ranks.main` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from tests.support.cann.checked_ranks import Pair, main, on_card

_STEPS = 3


def _model() -> torch.nn.Sequential:
    """Return the model, the same in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 8, generator=generator), torch.randn(16, 8, generator=generator)


def _train(model: torch.nn.Module, step: Callable[[], None]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(_STEPS):
        step()
        optimizer.step()
        optimizer.zero_grad()


def _trained() -> dict[str, Tensor]:
    """Return the parameters that the training of the whole model by the host ends with."""
    model, (inputs, targets) = _model(), _batch()
    _train(model, lambda: mse_loss(model(inputs), targets).backward())
    return dict(model.named_parameters())


def _whole(parameter: Tensor) -> Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _compare(parameters: Iterator[tuple[str, Tensor]]) -> Iterator[Pair]:
    expected = _trained()
    for name, parameter in parameters:
        yield _whole(parameter), expected[name]


def _data_parallel(rank: int, count: int) -> Iterator[Pair]:
    model = DistributedDataParallel(_model().to("npu"))
    inputs, targets = (on_card(each.chunk(count)[rank]) for each in _batch())
    _train(model, lambda: mse_loss(model(inputs), targets).backward())
    yield from _compare(model.module.named_parameters())


def _tensor_parallel(rank: int, count: int) -> Iterator[Pair]:
    mesh = init_device_mesh("npu", (count,))
    model = parallelize_module(_model().to("npu"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs, targets = (on_card(each) for each in _batch())
    _train(model, lambda: mse_loss(model(inputs), targets).backward())
    yield from _compare(model.named_parameters())


def _fully_sharded(rank: int, count: int) -> Iterator[Pair]:
    mesh, model = init_device_mesh("npu", (count,)), _model().to("npu")
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    inputs, targets = (on_card(each.chunk(count)[rank]) for each in _batch())
    _train(model, lambda: mse_loss(model(inputs), targets).backward())
    yield from _compare(model.named_parameters())


def _stage_of(rank: int) -> tuple[torch.nn.Module, dict[str, str]]:
    """Return a stage of two, and its parameters' names in the whole model."""
    layer, name = (_model()[:2], "0") if rank == 0 else (_model()[2], "2")
    prefix = "0." if rank == 0 else ""
    return layer.to("npu"), {f"{prefix}{each}": f"{name}.{each}" for each in ("weight", "bias")}


def _pipeline(rank: int, count: int) -> Iterator[Pair]:
    """Train two stages, by messages that the program sends itself."""
    if rank > 1:
        return
    stage, names = _stage_of(rank)
    inputs, targets = (on_card(each) for each in _batch())

    def step() -> None:
        if rank == 0:
            between = stage(inputs)
            dist.isend(between.detach(), 1).wait()
            gradient = torch.empty_like(between)
            dist.irecv(gradient, 1).wait()
            between.backward(gradient)
        else:
            between = torch.empty(16, 16, device="npu", requires_grad=True)
            dist.irecv(between.detach(), 0).wait()
            mse_loss(stage(between), targets).backward()
            dist.isend(between.grad, 0).wait()

    _train(stage, step)
    yield from _compare((names[name], parameter) for name, parameter in stage.named_parameters())


def _scheduled_pipeline(rank: int, count: int) -> Iterator[Pair]:
    """Train two stages on four parts of a batch, by torch's schedule."""
    group = dist.new_group([0, 1])
    if rank > 1:
        return
    layers, names = _stage_of(rank)
    stage = PipelineStage(layers, rank, 2, torch.device("npu", rank), group=group)
    schedule = ScheduleGPipe(stage, 4, loss_fn=mse_loss)
    inputs, targets = (on_card(each) for each in _batch())
    _train(layers, lambda: schedule.step(inputs) if rank == 0 else schedule.step(target=targets))
    yield from _compare((names[name], parameter) for name, parameter in layers.named_parameters())


if __name__ == "__main__":
    checks = (_data_parallel, _tensor_parallel, _fully_sharded, _pipeline, _scheduled_pipeline)
    main({check.__name__: check for check in checks}, tolerance=1e-5)
