"""Trainings that are watched and compared: honest reruns and a fault in one layer's backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import msprobe_hooks
from msprobe_hooks.extensions.monitor.series.reader import Run, open_run, rank_folders
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from pytest_msprobe.extensions.monitor.series_names import places

FAULTY_STEP, STEPS = 12, 14


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0] * ctx.factor, None


class Layer(torch.nn.Module):
    """A layer that multiplies its gradient by ``factor``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(width, width), torch.nn.LayerNorm(width)
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.linear(self.norm(_Scaled.apply(x, self.factor))))


def train(folder: Path, seed: int, *, permuted: bool = False, faulty_layer: int | None = None) -> Run:
    """Train on random data and return what was watched; ``permuted`` adds the gradients of a batch in another order."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), *(Layer(16) for _ in range(2)), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data, order = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    what = ["activations", "activation_gradients", "gradients"]
    statistics = ["norm", "min", "max"]
    with msprobe_hooks.watch(model, optimizer, folder, what=what, statistics=statistics, ndigits=18):
        for step in range(STEPS):
            inputs, labels = torch.randn(24, 8, generator=data), torch.randint(0, 4, (24,), generator=data)
            if permuted:
                rows = torch.randperm(24, generator=order)
                inputs, labels = inputs[rows], labels[rows]
            if faulty_layer is not None:
                model[faulty_layer].factor = 1.001 if step == FAULTY_STEP else 1.0
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return open_run(rank_folders(folder)[0])


def departures(target: Run, golden: Run) -> list[tuple[int, str, str]]:
    """Return step, task and name of every departure, the first first."""
    pair, found = Pair(target, golden), []
    for key, place in places(golden.keys).items():
        compared = pair.compare(key)
        if compared.first_over is not None:
            found.append((int(compared.steps[compared.first_over]), place, key))
    return [(step, key.task, key.name) for step, _, key in sorted(found, key=lambda each: each[:2])]


@pytest.fixture(scope="module", params=[0])
def golden(request, tmp_path_factory) -> tuple[int, Run]:
    """Return a seed and its golden run."""
    return request.param, train(tmp_path_factory.mktemp("golden"), request.param)


def test_a_thousandth_in_one_layers_backward_is_named_by_step_and_layer(tmp_path, golden):
    seed, run = golden
    faulty = train(tmp_path, seed, permuted=True, faulty_layer=1 + seed)

    assert departures(faulty, run)[0] == (FAULTY_STEP, "actv_grad", f"{1 + seed}.input")


def test_an_honest_rerun_that_differs_in_bits_is_no_alarm(tmp_path, golden):
    seed, run = golden
    rerun = train(tmp_path, seed, permuted=True)

    assert any((rerun.read(key).values != run.read(key).values).any() for key in run.keys if key.task == "grad_reduced")
    assert departures(rerun, run) == []
