"""A grouped product that an NPU made of some rows, of which the last belong to no group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def grouped(folder: Path, rubbish: float, groups: list[int], kind: int, *, with_files: bool = True) -> Path:
    """Write the dump of a grouped product of 8 rows of which 6 belong to a group."""
    (folder / "dump_tensor_data").mkdir(parents=True)
    make = _element(folder, with_files=with_files)
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(8, 4, generator=generator), torch.randn(2, 4, 3, generator=generator)
    y = torch.cat([x[:3] @ weight[0], x[3:6] @ weight[1], torch.full((2, 3), rubbish)])
    name = "NPU.npu_grouped_matmul.0.forward"
    body = {
        "input_args": [[make(x, "x")], [make(weight, "w")]],
        "input_kwargs": {
            "group_list": make(torch.tensor(groups), "g"),
            "split_item": {"type": "int", "value": 2},
            "group_type": {"type": "int", "value": 0},
            "group_list_type": {"type": "int", "value": kind},
        },
        "output": [[make(y, "y")]],
    }
    path = folder / "dump.json"
    data_folder = str(folder / "dump_tensor_data")
    top = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": data_folder, "data": {name: body}}
    path.write_text(json.dumps(top))
    path.chmod(0o640)
    return path


def _element(folder: Path, *, with_files: bool) -> Callable[[torch.Tensor, str], Any]:
    def make(tensor: torch.Tensor, name: str) -> Any:
        values = tensor.double()
        found = {
            "type": "torch.Tensor",
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "requires_grad": False,
        }
        found |= {"Max": values.max().item(), "Min": values.min().item()}
        found |= {"Mean": values.mean().item(), "Norm": values.norm().item()}
        if with_files:
            torch.save(tensor, folder / "dump_tensor_data" / f"{name}.pt")
            found["data_name"] = f"{name}.pt"
        return found

    return make
