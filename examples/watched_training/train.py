"""Watches a training whose learning rate is multiplied by 1000 at step 40, and writes the run beside this file."""

from pathlib import Path

import torch

import msprobe_hooks

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
wanted = torch.nn.Linear(8, 1)

with msprobe_hooks.watch(model, optimizer, Path(__file__).parent / "run", what=["activations", "gradients"]):
    for step in range(50):
        inputs = torch.randn(32, 8)
        if step == 40:
            optimizer.param_groups[0]["lr"] *= 1000
        optimizer.zero_grad()
        (model(inputs) - wanted(inputs).detach()).square().mean().backward()
        optimizer.step()
