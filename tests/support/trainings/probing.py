"""Models under the gradient probe, and what the probe wrote of them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from msprobe_hooks import PrecisionDebugger

Monitor = Callable[..., Path]


def finish() -> None:
    """End the probe, as the end of a program does."""
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()


def table(rank: Path, step: int = 0) -> list[dict[str, str]]:
    """Return the rows of a step's summary in the folder of a rank."""
    with (rank / f"grad_summary_{step}.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def names(rank: Path, step: int = 0) -> list[str]:
    """Return the names of the parameters that a step's summary has."""
    return [row["param_name"] for row in table(rank, step)]


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    """Return a parameter that has these values as its gradient."""
    of_values = nn.Parameter(torch.zeros(len(values), dtype=dtype))
    of_values.grad = torch.tensor(values, dtype=dtype)
    return of_values


def model_of(**parameters: nn.Parameter) -> nn.Module:
    """Return a model that has these parameters."""
    model = nn.Module()
    for name, one in parameters.items():
        model.register_parameter(name, one)
    return model


def sgd(*models: nn.Module) -> torch.optim.SGD:
    """Return an optimizer of all parameters of these models."""
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.1)
