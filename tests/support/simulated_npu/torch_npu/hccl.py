"""The backend ``hccl`` of torch.distributed: gloo, to which what is on cards is copied, and back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future


class ProcessGroupHccl(dist.ProcessGroup):
    """A group that waits for each communication, so that what it returns is done."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:  # noqa: N802
        return "hccl"

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        return _through_host([tensors], lambda host: self._gloo.allreduce(host[0], options))

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:
        return _through_host([tensors], lambda host: self._gloo.broadcast(host[0], options))

    def allgather(self, gathered: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> Any:
        return _through_host([*gathered, tensors], lambda host: self._gloo.allgather(host[:-1], host[-1], options))

    def barrier(self, opts: Any) -> Any:
        return self._gloo.barrier()


def register() -> None:
    """Make the backend known to torch.distributed, as that of the device ``npu``."""
    dist.Backend.register_backend("hccl", ProcessGroupHccl, devices=["npu"])


def _through_host(lists: list[list[torch.Tensor]], communicate: Callable[[list[list[torch.Tensor]]], Any]) -> Any:
    host = [[tensor.cpu() for tensor in tensors] for tensors in lists]
    communicate(host).wait()
    for tensors, results in zip(lists, host, strict=True):
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(result)
    done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    done.set_result(lists[0])
    return _create_work_from_future(done)
