"""The configurations that msprobe's own tests of its TrainerMon have, and a training that runs under any TrainerMon.

It needs torch only, so that msprobe's environments can run it as well.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

_WHOLE_MODEL: dict[str, Any] = {"targets": {"": {}}, "format": "csv", "ops": ["norm"]}

#: Of msprobe's tests, and below them the forms that its manual has.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "all": {
        **_WHOLE_MODEL,
        "param_distribution": True,
        "xy_distribution": True,
        "mv_distribution": True,
        "wg_distribution": True,
        "all_xy": True,
        "ops": ["norm", "nans"],
        "step_count_per_record": 3,
    },
    "cc": {
        **_WHOLE_MODEL,
        "cc_distribution": {"enable": True, "cc_codeline": []},
        "alert": {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": True},
    },
    "mv": {**_WHOLE_MODEL, "mv_distribution": True},
    "stack": {"targets": {}, "format": "csv", "stack_info": True},
    "struct": {"targets": {}, "print_struct": True, "xy_distribution": True, "all_xy": True, "ops": ["norm"]},
    "ur": {**_WHOLE_MODEL, "ur_distribution": True, "format": "tensorboard"},
    "wg": {**_WHOLE_MODEL, "wg_distribution": True},
    "xy": {"targets": {}, "xy_distribution": True, "all_xy": True, "format": "csv", "ops": ["norm", "nans"]},
    "one_module": {**_WHOLE_MODEL, "targets": {"fc": {}}, "xy_distribution": True, "wg_distribution": True},
    "one_chunk": {**_WHOLE_MODEL, "targets": {"0:": {}}, "xy_distribution": True, "wg_distribution": True},
}
#: Of these the optimizer is not given the bias.
FORGOTTEN = {"all_but_the_bias_stepped": CONFIGURATIONS["all"]}


class Model(nn.Module):
    """A linear layer and a ReLU; its parameters are no random numbers, which differ from CPU to CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.relu = nn.ReLU()
        with torch.no_grad():
            for place, one in enumerate(self.parameters()):
                one.copy_(torch.sin(torch.arange(one.numel()) + float(place)).reshape(one.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.fc(x))


def train(monitor: Any, *, forgets_bias: bool = False, reduces: bool = False) -> None:
    """Train for two steps; ``reduces`` has the gradients pass through an all-reduce."""
    model = Model()
    stepped = [one for name, one in model.named_parameters() if not (forgets_bias and name == "fc.bias")]
    optimizer = torch.optim.Adam(stepped, lr=1e-4, foreach=False)
    monitor.set_monitor(model=model, grad_acc_steps=1, optimizer=optimizer)
    # The inputs take a gradient, as in msprobe's tests.
    inputs = torch.cos(torch.arange(96.0)).reshape(16, 6).requires_grad_()
    labels = torch.arange(16) % 4
    for step in range(2):
        optimizer.zero_grad()
        batch = slice(8 * step, 8 * step + 8)
        cross_entropy(model(inputs[batch]), labels[batch]).backward()
        if reduces:
            for one in model.parameters():
                torch.distributed.all_reduce(one.grad)
        optimizer.step()


def written(folder: Path) -> dict[str, dict[str, float]]:
    """Return the cells of each file below a folder, as ``{"fc.input:0 1 norm": 4.9}``: name, micro step, step, column.

    Files that are no table of numbers have none.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {_name(path): _cells(path) if path.suffix == ".csv" else {} for path in files}


def _name(path: Path) -> str:
    return "events" if path.name.startswith("events.") else path.name


def _cells(path: Path) -> dict[str, float]:
    cells = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if "vpp_stage" in row:
                if row["vpp_stage"] == "all_reduce":
                    # msprobe's lines of collectives lack the stage, and have the step behind the numbers.
                    row = {"name": "all_reduce/post_0", "step": row["step"], "norm": row["name"]}
                name = f"{row['name']}:{row['micro_step']}" if "micro_step" in row else row["name"]
                cells |= {f"{name} {row['step']} {one}": float(row[one]) for one in ("norm", "nans") if one in row}
    return cells


def write(configuration: dict[str, Any], path: Path) -> Path:
    """Write a configuration with the mode that msprobe asks for."""
    path.write_text(json.dumps(configuration))
    path.chmod(0o640)
    return path
