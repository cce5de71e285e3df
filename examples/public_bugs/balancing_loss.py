"""NVIDIA-NeMo/Automodel#1408: the gradient of a balancing loss never reaches the router of the experts."""

import torch
from simulated import record_runs
from torch import nn

from msprobe_hooks import record


class WithLoss(torch.autograd.Function):
    """Return weights as they are, and give a loss that goes with them a gradient of 1."""

    @staticmethod
    def forward(ctx, weights, loss):
        return weights.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.ones(())


class Router(nn.Module):
    def __init__(self, faulty):
        super().__init__()
        self.faulty, self.gate = faulty, nn.Linear(8, 4)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        attached = WithLoss.apply(weights, weights.mean(0).square().sum())
        return weights if self.faulty else attached


def run(folder, faulty):
    model = nn.Sequential(Router(faulty), nn.Linear(4, 1))
    with record(folder, model=model):
        model(torch.randn(16, 8)).square().mean().backward()


if __name__ == "__main__":
    record_runs(run)
