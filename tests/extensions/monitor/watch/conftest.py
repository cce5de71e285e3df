"""Trainings that ``TrainerMon`` watches."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.support.fixtures.recordings import records


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write a configuration and return its path; what is written lies next to it."""
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))

    def write(**keys):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(keys))
        return path

    return write


@pytest.fixture
def trained():
    """Train a small model for a few steps with a monitor and return the model; its last step may be held back."""

    def train(monitor, steps=2, micro_batches=1, *arguments, before_step=lambda: None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=micro_batches)
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(micro_batches):
                model(torch.randn(2, 3)).mean().backward()
            before_step()
            optimizer.step()
        return model

    return train


__all__ = ["records"]
