"""Programs of ranks on cards, which compare what they get with what follows from all ranks' inputs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

#: What a rank has on its card, and what it should be.
Pair: TypeAlias = tuple[Tensor, Tensor]
#: Makes the calls of one check, given the rank and how many there are.
Check: TypeAlias = Callable[[int, int], Iterable[Pair]]


def main(checks: Mapping[str, Check], tolerance: float = 0.0) -> None:
    """Join the group as the program's arguments say, make every check, and leave in the folder what differs.

    Its arguments are the rank, the folder and how many ranks there are.
    """
    rank, folder, count = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    torch.npu.set_device(rank)  # type: ignore[attr-defined,unused-ignore]
    dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    differences = {name: _difference(check, rank, count, tolerance) for name, check in checks.items()}
    (folder / f"differences{rank}.json").write_text(json.dumps(differences))
    dist.destroy_process_group()


def on_card(tensor: Tensor) -> Tensor:
    """Return a tensor on this rank's card."""
    return tensor.to("npu")


def _difference(check: Check, rank: int, count: int, tolerance: float) -> str:
    """Return what is not as it should be, or the error; empty where all is right."""
    try:
        for got, expected in check(rank, count):
            torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
